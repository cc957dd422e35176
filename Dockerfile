# docker build --target cpu -t jaxtrade:cpu .
# docker build --target cuda -t jaxtrade:cuda .    (run with: docker run --gpus all ...; needs the NVIDIA toolkit)
FROM python:3.12-slim-bookworm AS base
ENV PYTHONUNBUFFERED=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN useradd --create-home --uid 1000 trader && mkdir /runs && chown trader /runs
WORKDIR /src
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY configs configs
COPY jaxtrade jaxtrade

FROM base AS cuda
# the wheels carry CUDA itself; only the driver is the host's
RUN pip install --no-cache-dir ".[parquet]" "jax[cuda13]>=0.10.2,<0.12"
USER trader
WORKDIR /runs
ENTRYPOINT ["jaxtrade"]
CMD ["doctor", "--run-dir", "/runs"]

# last: the default target
FROM base AS cpu
RUN pip install --no-cache-dir ".[parquet]"
USER trader
WORKDIR /runs
ENTRYPOINT ["jaxtrade"]
CMD ["doctor", "--run-dir", "/runs"]
