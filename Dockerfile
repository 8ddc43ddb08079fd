# The environment server: CPU only, no torch. Build: docker build -t llmserve-env .
# The digest is that of the index over all architectures. To renew it: docker buildx imagetools inspect python:3.11-slim
ARG BASE=python:3.11.17-slim@sha256:45037981b62b34b44602584fccbc4d884d5f7dc92c7ee86bb38a698a79fe1e51
FROM ${BASE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/llmserve/venv
ENV PATH=/opt/llmserve/venv/bin:$PATH
WORKDIR /app/env
COPY requirements.txt requirements-dev.txt ./
# pip compiles the bytecode too, which halves the time to start. Of the developers' list, PostgreSQL's client is taken, and for the
# build alone hatchling with what it needs: every file that is fetched has its hash in the lists.
RUN sed -n '/^psycopg/,/[^\\]$/p' requirements-dev.txt > requirements-postgres.txt \
    && sed -nE '/^(hatchling|packaging|pathspec|pluggy|trove-classifiers|editables)==/,/[^\\]$/p' \
        requirements.txt requirements-dev.txt > requirements-build.txt \
    && pip install --quiet --require-hashes --no-deps -r requirements.txt -r requirements-postgres.txt \
    && python -m venv /opt/build \
    && /opt/build/bin/pip install --quiet --require-hashes --no-deps -r requirements-build.txt
COPY . .
RUN /opt/build/bin/python -m hatchling build -t wheel -d /opt/build/dist \
    && pip install --quiet --no-deps --no-index /opt/build/dist/*.whl && rm -rf /opt/build
# What a server never loads: plotting, the RPC parts of Arrow, and the tests, headers and stubs of the dependencies.
RUN pip uninstall --quiet --yes matplotlib fonttools contourpy kiwisolver cycler \
    && find /opt/llmserve/venv -depth -type d \( -name tests -o -name include \) -path '*site-packages*' -exec rm -rf {} + \
    && find /opt/llmserve/venv -path '*site-packages*' \( -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.a' \
        -o -name '*.map' -o -name '*arrow_flight*' -o -name '*_flight.*' \) -delete \
    && python -c 'import psycopg_pool, pyarrow.dataset, pyarrow.parquet'
# Compiled for any machine of this architecture, because the image runs on another machine.
ENV NUMBA_CPU_NAME=generic NUMBA_CACHE_DIR=/opt/llmserve/kernels
# From another folder, so that the kernels of the installed package are compiled, not those of the copied sources.
RUN cd /opt && python -m llmserve_env.env.warmup && llmserve evaluate --agent heuristic ppo --task all --episodes 1

FROM ${BASE}
COPY --from=build /opt/llmserve /opt/llmserve
WORKDIR /app/env
COPY --from=build /app/env/README.md /app/env/openenv.yaml ./
COPY --from=build /app/env/docker ./docker
# `uvicorn server.app:app`, as openenv.yaml names it; the package itself is installed.
COPY --from=build /app/env/server ./server
# A new volume takes over the permissions of the folder that it is mounted on, so nothing has to run as root to hand it over.
RUN mkdir -p -m 1777 /data
# Only /tmp and a volume are written at run time, so the image also runs with a read-only root and as any user.
ENV PATH=/opt/llmserve/venv/bin:$PATH \
    HOME=/tmp \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    NUMBA_CPU_NAME=generic \
    NUMBA_CACHE_DIR=/tmp/kernels \
    LLMSERVE_DATA_DIR=/tmp/llmserve \
    ENV_README_PATH=/app/env/README.md \
    ENABLE_WEB_INTERFACE=true
USER 1000:1000
# Spaces use port 7860, OpenEnv uses 8000.
EXPOSE 7860 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["/app/env/docker/entrypoint.sh"]
CMD ["server", "--host", "0.0.0.0", "--port", "7860", "--port", "8000"]
