"""The public Azure and Mooncake traces, if they are beside the checkout, have the figures of the datasets."""

from __future__ import annotations

import numpy as np
import pytest

from llmserve_env.units import PS_PER_NS
from llmserve_env.workloads.sampling import sample
from llmserve_env.workloads.traces.fidelity import measure_fidelity
from llmserve_env.workloads.traces.fitting import FitOptions, fit_trace
from llmserve_env.workloads.traces.statistics import WINDOWS_S, dependence, traffic_of
from tests.workloads.traces.conftest import Loader

AZURE = {"azure_llm_2023_code.csv.gz": 8_819, "azure_llm_2023_conv.csv.gz": 19_366}
# AzureLLMInferenceDataset2023 (CC-BY-4.0, Splitwise, ISCA 2024): IDC in windows of 1, 10 and 60 s.
IDC = {"azure_llm_2023_code.csv.gz": (13.1864, 71.6415, 163.9647), "azure_llm_2023_conv.csv.gz": (1.385, 3.857, 16.128)}


@pytest.mark.parametrize("file", AZURE)
def test_azure_replay_is_exact(real_trace: Loader, file: str) -> None:
    trace = real_trace(file, "azure")
    table = trace.to_request_table()
    assert len(table) == len(trace) == AZURE[file]
    assert np.array_equal(table.arrival_at_ps, trace.arrival_at_ns * PS_PER_NS)
    assert int(table.prompt_tokens.sum()) == int(trace.prompt_tokens.sum())
    by_minute = [len(trace.to_request_table(start_s=t, stop_s=t + 60.0)) for t in np.arange(0.0, 3600.0, 60.0)]
    assert by_minute == np.bincount((trace.arrival_s / 60.0).astype(int), minlength=60).tolist()


@pytest.mark.parametrize("file", AZURE)
def test_azure_burstiness_is_the_published_one(real_trace: Loader, file: str) -> None:
    found = traffic_of(real_trace(file, "azure")).dispersion
    assert [found[window].idc for window in WINDOWS_S] == pytest.approx(IDC[file], rel=1e-3)


@pytest.mark.parametrize("file", AZURE)
def test_azure_fit_is_faithful(real_trace: Loader, file: str) -> None:
    trace = real_trace(file, "azure")
    found = measure_fidelity(trace, fit_trace(trace).spec)
    idc = [statistic for statistic in found.statistics if statistic.name.startswith("IDC")]
    quantiles = [statistic for statistic in found.statistics if statistic.name.split(" p")[-1].isdecimal()]
    assert (len(idc), len(quantiles)) == (3, 14)
    assert all(statistic.error <= 0.2 for statistic in idc)
    # Nine seeds of ten, and not only their median, are that close.
    assert all(statistic.low / statistic.trace >= 0.8 and statistic.high / statistic.trace <= 1.2 for statistic in idc)
    assert all(statistic.error <= 0.05 for statistic in quantiles)
    assert found.is_met
    assert found.statistic("mean rps").error < 0.03


def test_azure_code_is_on_off_too(real_trace: Loader) -> None:
    trace = real_trace("azure_llm_2023_code.csv.gz", "azure")
    fitted = fit_trace(trace, FitOptions(arrivals="on_off"))
    process = fitted.spec.sources[0].arrivals
    assert process.kind == "on_off"
    assert 8.0 < process.on_s < 25.0 and 30.0 < process.off_s < 70.0
    found = measure_fidelity(trace, fitted.spec)
    assert all(statistic.error <= 0.2 for statistic in found.statistics if statistic.name.startswith("IDC"))


def test_azure_conversations_keep_output_by_prompt_band(real_trace: Loader) -> None:
    trace = real_trace("azure_llm_2023_conv.csv.gz", "azure")
    table = sample(fit_trace(trace).spec, 0)
    recorded = dependence(trace.prompt_tokens, trace.output_tokens).explained_by_band
    assert recorded == pytest.approx(0.6, abs=0.01)
    assert dependence(table.prompt_tokens, table.output_tokens).explained_by_band == pytest.approx(recorded, rel=0.1)


def test_mooncake_agents_share_three_prefixes(real_trace: Loader) -> None:
    trace = real_trace("mooncake_toolagent_head1000.jsonl.gz", "mooncake")
    groups = {
        int(tokens): float(np.mean(trace.prefix_tokens == tokens)) for tokens in np.unique(trace.prefix_tokens).tolist()
    }
    assert groups == pytest.approx({512: 0.486, 2560: 0.153, 6144: 0.361})
    spec = fit_trace(trace).spec
    assert sorted(source.prefix_tokens for source in spec.sources) == [512, 2560, 6144]
    table = sample(spec, 0)
    assert len(table) == pytest.approx(len(trace), rel=0.15)
    assert np.mean(table.prefix_tokens == 6144) == pytest.approx(0.361, abs=0.05)
