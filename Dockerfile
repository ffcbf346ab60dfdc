# The sandbox's image on the platform. Local development does not build it: the engine boots the same supervisor in
# namespaces of the machine.
#
# The supervisor is copied in, not built here, so that the binary that was tested is the one that ships. Build it
# first; it is static and needs nothing of the image:
#
#   cargo build --profile native --target x86_64-unknown-linux-musl -p ringfence-supervisor
#
FROM debian:bookworm-slim

RUN apt-get update \
  && apt-get install -y --no-install-recommends bash ca-certificates curl git git-lfs procps \
  && rm -rf /var/lib/apt/lists/* \
  && mkdir -p /workspace /artifacts

COPY --chmod=0755 target/x86_64-unknown-linux-musl/native/ringfenced /usr/local/bin/ringfenced

# The supervisor is PID 1: it starts every job, and its end ends them all.
EXPOSE 7117
ENTRYPOINT ["/usr/local/bin/ringfenced"]
