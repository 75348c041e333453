# The server in a container; docs/docker.md tells how it is used and what was run.
#   docker build -t tapr .                                     with the weights of clip-b16 inside
#   docker build -t tapr --build-arg WEIGHTS="clip-b16 local" --build-arg EXTRAS=serve,llm,heic,local .
ARG BASE=python:3.12-slim

FROM ${BASE} AS build
# what is installed beside the core, and whose weights are baked in (names of `tapr models pull`); "" for none
ARG EXTRAS=serve,llm,heic,watch
ARG WEIGHTS=clip-b16
RUN apt-get update && apt-get install --yes --no-install-recommends g++ python3-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN python3 -m venv /opt/tapr && /opt/tapr/bin/pip install --no-cache-dir ".[${EXTRAS}]"
ENV TAPR_HOME=/opt/tapr-home
RUN mkdir -p "$TAPR_HOME" && for name in $WEIGHTS; do /opt/tapr/bin/tapr models pull "$name" || exit 1; done

FROM ${BASE}
RUN useradd --create-home --uid 10001 tapr && mkdir /data && chown tapr /data
COPY --from=build /opt/tapr /opt/tapr
COPY --from=build --chown=tapr /opt/tapr-home /opt/tapr-home
USER tapr
ENV PATH=/opt/tapr/bin:$PATH TAPR_HOME=/opt/tapr-home PYTHONUNBUFFERED=1
VOLUME /data
EXPOSE 8765
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8765/readyz', timeout=4)"]
ENTRYPOINT ["tapr"]
# 0.0.0.0 is reachable by others: without TAPR_TOKEN the server refuses to start
CMD ["serve", "-g", "/data/gallery", "--host", "0.0.0.0"]
