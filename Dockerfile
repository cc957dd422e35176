# docker build --target cpu -t jaxtrade:cpu .
# docker build --target cuda -t jaxtrade:cuda .    (run with: docker run --gpus all ...; needs the NVIDIA toolkit)
FROM python:3.12-slim-bookworm AS base
ENV PYTHONUNBUFFERED=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN useradd --create-home --uid 1000 trader && mkdir /runs && chown trader /runs
WORKDIR /src
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY configs configs
COPY jaxtrade jaxtrade
COPY bench bench

FROM base AS cuda
# the wheels carry CUDA itself; only the driver is the host's
# the ranges are pyproject.toml's, where they are stated once
# hadolint ignore=DL3013
RUN pip install --no-cache-dir . "jax[cuda13]>=0.10.2,<0.12"
USER 1000
WORKDIR /runs
ENTRYPOINT ["jaxtrade"]
CMD ["doctor", "--run-dir", "/runs"]

# last: the default target
FROM base AS cpu
# the ranges are pyproject.toml's, where they are stated once
# hadolint ignore=DL3013
RUN pip install --no-cache-dir .
USER 1000
WORKDIR /runs
ENTRYPOINT ["jaxtrade"]
CMD ["doctor", "--run-dir", "/runs"]
