# The server in a container:
#   docker build -t tapr .
#   docker run -p 8765:8765 -e TAPR_TOKEN=... -v /my/pictures:/pictures:ro -v tapr:/data tapr index /pictures -g /data/gallery
#   docker run -p 8765:8765 -e TAPR_TOKEN=... -v /my/pictures:/pictures:ro -v tapr:/data tapr
FROM python:3.12-slim AS build
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN python -m venv /opt/tapr && /opt/tapr/bin/pip install --no-cache-dir '.[serve,llm,heic]'

FROM python:3.12-slim
COPY --from=build /opt/tapr /opt/tapr
RUN useradd --create-home tapr && mkdir /data && chown tapr /data
USER tapr
# weights are fetched once, into the volume
ENV PATH=/opt/tapr/bin:$PATH TAPR_HOME=/data/home PYTHONUNBUFFERED=1
VOLUME /data
EXPOSE 8765
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8765/readyz')"]
ENTRYPOINT ["tapr"]
# 0.0.0.0 is reachable by others: without TAPR_TOKEN the server refuses to start
CMD ["serve", "-g", "/data/gallery", "--host", "0.0.0.0"]
