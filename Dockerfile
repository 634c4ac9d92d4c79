# An image with one program, charge-once. It needs no shell script and installs no package.
#
#   docker build -t charge-once .
#   docker run -e DATABASE_URL=postgres://… -p 8080:8080 charge-once

FROM rust:1-bookworm AS build
WORKDIR /build

# Queries are checked against .sqlx/, so the build needs no database.
ENV SQLX_OFFLINE=true

# Dependencies change less often than code. Compiled with an empty program, they form a layer that
# Docker reuses until one of these two files changes.
COPY Cargo.toml Cargo.lock ./
COPY crates/idempotency/Cargo.toml crates/idempotency/
RUN mkdir src crates/idempotency/src \
    && touch src/lib.rs crates/idempotency/src/lib.rs \
    && echo 'fn main() {}' > src/main.rs \
    && cargo build --release --locked \
    && rm -r src crates/idempotency/src

COPY .sqlx .sqlx
COPY migrations migrations
COPY crates crates
COPY src src
# Cargo compares times, and a file from a checkout can be older than the empty file that it replaces.
RUN touch src/lib.rs src/main.rs crates/*/src/lib.rs \
    && cargo build --release --locked

# The Debian release of the build image, for the same C library. TLS and its root certificates are
# compiled in, so no package is needed.
FROM debian:bookworm-slim
COPY --from=build /build/target/release/charge-once /usr/local/bin/charge-once

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
