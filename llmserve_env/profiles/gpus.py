"""Data of the GPUs that have profiles: rates and sizes from datasheets, prices from mid-range list prices."""

from __future__ import annotations

from llmserve_env.engine.tiers import TIERS_BY_NAME
from llmserve_env.profiles.schema import Gpu

HOST_LINK_EFFICIENCY = 0.8
"""Share of the peak of one PCIe or NVLink direction that a large copy reaches."""


def _gpu(
    name: str,
    memory_mib: int,
    bandwidth_gb: int,
    tflops: float,
    host_gb: int,
    link_gb: int,
    usd: float,
    watts: int,
    tiers: tuple[str, ...],
) -> Gpu:
    return Gpu(
        name=name,
        memory_bytes=memory_mib << 20,
        memory_bandwidth_bytes_per_s=bandwidth_gb * 10**9,
        peak_flops_per_s={name: TIERS_BY_NAME[name].peak * tflops * 1e12 for name in tiers},
        weights_load_bytes_per_s=int(host_gb * 1e9 * HOST_LINK_EFFICIENCY),
        kv_transfer_bytes_per_s=int(link_gb * 1e9 * HOST_LINK_EFFICIENCY),
        price_usd_per_hour=usd,
        power_w=watts,
    )


AMPERE = ("FP16", "INT8", "INT4")
HOPPER = (*AMPERE, "FP8")
BLACKWELL = (*HOPPER, "FP4")
"""Tiers that a generation of cards computes in, or expands to 16 bits on the way."""
GPUS = {
    "a100-40gb": _gpu("NVIDIA A100-SXM4-40GB", 40536, 1555, 312, 32, 300, 1.29, 400, AMPERE),
    "a100-80gb": _gpu("NVIDIA A100-SXM4-80GB", 81920, 2039, 312, 32, 300, 1.49, 400, AMPERE),
    "h100-80gb": _gpu("NVIDIA H100-SXM5-80GB", 81559, 3350, 989, 64, 450, 2.99, 700, HOPPER),
    "h200-141gb": _gpu("NVIDIA H200-SXM5-141GB", 143771, 4800, 989, 64, 450, 3.99, 700, HOPPER),
    "b200-192gb": _gpu("NVIDIA B200-SXM6-192GB", 183359, 7700, 2250, 128, 900, 5.99, 1000, BLACKWELL),
    "b300-288gb": _gpu("NVIDIA B300-SXM6-288GB", 275040, 7750, 2250, 128, 900, 7.99, 1100, BLACKWELL),
    "gb200-192gb": _gpu("NVIDIA GB200-192GB", 189471, 8000, 2500, 64, 900, 6.99, 1200, BLACKWELL),
    "l40s-48gb": _gpu("NVIDIA L40S-48GB", 46068, 864, 362, 32, 32, 0.99, 350, HOPPER),
    "rtx-pro-6000-96gb": _gpu("NVIDIA RTX PRO 6000 Server-96GB", 97887, 1792, 468, 64, 64, 1.79, 600, BLACKWELL),
}
