# An image with one program, charge-once. Nothing else is in it.
#
#   docker build --build-arg COMMIT=$(git rev-parse --short=12 HEAD) -t charge-once .
#   docker run -e DATABASE_URL=postgres://… -p 8080:8080 charge-once
#
# It takes BuildKit, which Docker 23 and later use anyway (before: DOCKER_BUILDKIT=1). Downloaded crates
# stay in its cache, for the layers that a change of Cargo.lock makes anew.

FROM rust:1.95.0-bookworm AS build
WORKDIR /build

# It names the compiler that every check runs with, which is the base image's.
COPY rust-toolchain.toml ./

# Queries are checked against .sqlx/, so the build needs no database.
ENV SQLX_OFFLINE=true

# Dependencies change less often than code. Compiled beside empty packages they make a layer of
# their own, which stays as long as these files do. Cargo asks for the manifest of every member of
# the workspace; the test `the_image_s_first_layer_has_every_manifest` compares the two lists.
COPY Cargo.toml Cargo.lock ./
COPY crates/client/Cargo.toml crates/client/
COPY crates/conform/Cargo.toml crates/conform/
COPY crates/console/Cargo.toml crates/console/
COPY crates/developer/Cargo.toml crates/developer/
COPY crates/idempotency/Cargo.toml crates/idempotency/
COPY crates/postgres/Cargo.toml crates/postgres/
COPY crates/processor/Cargo.toml crates/processor/
COPY crates/service/Cargo.toml crates/service/
COPY crates/strict-params/Cargo.toml crates/strict-params/
COPY crates/webhooks/Cargo.toml crates/webhooks/
COPY examples/actix/Cargo.toml examples/actix/
COPY examples/axum/Cargo.toml examples/axum/
COPY examples/outbox/Cargo.toml examples/outbox/
COPY examples/test_support/Cargo.toml examples/test_support/
COPY examples/webhook_receiver/Cargo.toml examples/webhook_receiver/
COPY tools/Cargo.toml tools/
COPY tools/model/Cargo.toml tools/model/
RUN --mount=type=cache,target=/usr/local/cargo/registry,sharing=locked \
    for manifest in $(find . -name Cargo.toml); do \
        package=$(dirname "$manifest") \
        && mkdir -p "$package/src" \
        && touch "$package/src/lib.rs" \
        && echo 'fn main() {}' > "$package/src/main.rs" || exit; \
    done \
    && cargo build --profile dist --locked --package charge-once \
    && find . -name src -not -path './target/*' -prune -exec rm -r {} +

COPY .sqlx .sqlx
COPY migrations migrations
COPY crates crates
COPY examples examples
COPY tools tools
COPY build.rs build.rs
COPY src src
# The context has no .git. The commit is for `charge-once --version`.
ARG COMMIT
# Cargo compares times, and a file from a checkout can be older than the empty one it replaces.
RUN --mount=type=cache,target=/usr/local/cargo/registry,sharing=locked \
    export CHARGE_ONCE_COMMIT="$COMMIT" \
    && find src crates -name '*.rs' -exec touch {} + \
    && cargo build --profile dist --locked --package charge-once

# The program, and the C library that it was linked with: at the same paths, so that the loader finds it.
# TLS and its root certificates are compiled in.
RUN for file in $(ldd target/dist/charge-once | grep -o '/[^ ]*'); do \
        install -D "$file" "/image$file" || exit; \
    done \
    && install -D target/dist/charge-once /image/usr/local/bin/charge-once

# Nothing else: no shell, no package, nothing to update but the image.
FROM scratch
COPY --from=build /image /
ENV PATH=/usr/local/bin

ARG COMMIT
# That of Cargo.toml.
ARG VERSION=0.2.0
LABEL org.opencontainers.image.title="charge-once" \
      org.opencontainers.image.description="A payments API in which a retried request never charges twice" \
      org.opencontainers.image.source="https://github.com/charge-once/charge-once" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$COMMIT"

# A number, so that Kubernetes can verify that it isn't root. The program owns and writes no file.
USER 10001:10001

# 127.0.0.1 can't be reached from outside the container.
ENV BIND_ADDRESS=0.0.0.0:8080
EXPOSE 8080

# On SIGTERM, the program answers the requests in progress before it ends.
STOPSIGNAL SIGTERM

HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=3 \
    CMD ["charge-once", "healthcheck"]

# Another command replaces `serve`: `docker run … charge-once migrate`.
ENTRYPOINT ["charge-once"]
