# Two images: `cpu`, and `cuda` for NVIDIA GPUs. Both run `pahs` as a user without privileges.
#
#     make container                                                       the first, with buildah
#     podman run --rm -v "$PWD:/data" pahs:cpu deblur shaky.mp4
#     podman run --rm -p 127.0.0.1:8765:8765 -v pahs:/data -e PAHS_TOKEN=... pahs:cpu serve --host 0.0.0.0 --folder /data
#     podman run --rm --device nvidia.com/gpu=all -v "$PWD:/data" pahs:cuda deblur shaky.mp4
ARG BASE=docker.io/library/debian:bookworm-slim

FROM ${BASE} AS python
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates python3 python3-venv \
 && rm -rf /var/lib/apt/lists/*

# The wheel is built once, for both images.
FROM python AS wheel
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN python3 -m venv /opt/build \
 && PIP_CONSTRAINT=constraints.txt /opt/build/bin/pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

# PyTorch's builds for CUDA are on PyPI; the smaller ones without it are in an index of PyTorch's own.
FROM python AS cpu-environment
ARG CPU_INDEX="--extra-index-url https://download.pytorch.org/whl/cpu"
COPY constraints.txt /wheels/
COPY --from=wheel /wheels /wheels
RUN python3 -m venv /opt/pahs \
 && /opt/pahs/bin/pip install --no-cache-dir -c /wheels/constraints.txt ${CPU_INDEX} "$(echo /wheels/pahs-*.whl)[web,s3]"

FROM python AS cuda-environment
ARG CUDA_INDEX=""
COPY constraints.txt /wheels/
COPY --from=wheel /wheels /wheels
RUN python3 -m venv /opt/pahs \
 && /opt/pahs/bin/pip install --no-cache-dir -c /wheels/constraints.txt ${CUDA_INDEX} "$(echo /wheels/pahs-*.whl)[web,s3]"

FROM python AS cuda
# Triton compiles a small launcher in C for each of its kernels.
RUN apt-get update \
 && apt-get install -y --no-install-recommends gcc libc6-dev python3-dev \
 && rm -rf /var/lib/apt/lists/*
COPY --from=cuda-environment /opt/pahs /opt/pahs
RUN useradd --create-home --uid 1000 pahs && install -d -o pahs -g pahs /data
ENV PATH=/opt/pahs/bin:$PATH NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility,video
USER pahs
WORKDIR /data
EXPOSE 8765
ENTRYPOINT ["pahs"]
CMD ["--help"]

FROM python AS cpu
COPY --from=cpu-environment /opt/pahs /opt/pahs
RUN useradd --create-home --uid 1000 pahs && install -d -o pahs -g pahs /data
ENV PATH=/opt/pahs/bin:$PATH
USER pahs
WORKDIR /data
EXPOSE 8765
ENTRYPOINT ["pahs"]
CMD ["--help"]
