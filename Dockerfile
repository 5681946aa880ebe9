# dhpd, and dhp beside it: docker build --tag dhpd .
# docs/service.md shows how it is run; compose.yaml has all that a daemon for other containers needs.

FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY protocol/dhp_protocol protocol/dhp_protocol
COPY dhp_client dhp_client
COPY dhpd dhpd
RUN python -m venv --without-pip /opt/dhpd
RUN python -m pip --python /opt/dhpd/bin/python install --no-cache-dir .

FROM python:3.13-slim
RUN groupadd --gid 8471 dhpd
RUN useradd --uid 8471 --gid dhpd --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin dhpd
RUN install --directory --owner=dhpd --group=dhpd --mode=0700 /data /run/dhpd
COPY --from=build /opt/dhpd /opt/dhpd
ENV PATH="/opt/dhpd/bin:$PATH" \
    PYTHONDONTWRITEBYTECODE=1 \
    DHPD_DATA=/data \
    DHPD_LISTEN=unix:/run/dhpd/dhpd.sock \
    DHP_CONNECT=unix:/run/dhpd/dhpd.sock
USER 8471:8471
WORKDIR /
VOLUME /data
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=120s --retries=3 CMD ["dhp", "health"]
ENTRYPOINT ["dhpd"]
