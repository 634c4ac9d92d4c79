# charge-once in an image of one program, without a shell script or a package of its own.
#
#   docker build -t charge-once .
#   docker run -e DATABASE_URL=postgres://… -p 8080:8080 charge-once

FROM rust:1-bookworm AS build
WORKDIR /build

# Queries are checked against .sqlx/, so the build needs no database.
ENV SQLX_OFFLINE=true

# Dependencies change less often than code. Compiled beside an empty program they make a layer of
# their own, which stays as long as these two files do.
COPY Cargo.toml Cargo.lock ./
RUN mkdir src \
    && touch src/lib.rs \
    && echo 'fn main() {}' > src/main.rs \
    && cargo build --release --locked \
    && rm -r src

COPY .sqlx .sqlx
COPY migrations migrations
COPY src src
# Cargo compares times, and a file from a checkout can be older than the empty one it replaces.
RUN touch src/lib.rs src/main.rs \
    && cargo build --release --locked

# The same Debian as above, for the same C library. TLS and its root certificates are compiled in,
# so nothing has to be installed.
FROM debian:bookworm-slim
COPY --from=build /build/target/release/charge-once /usr/local/bin/charge-once

# A number, so that Kubernetes can see that it isn't root. The program owns no file and writes none.
USER 10001:10001

# From inside a container, 127.0.0.1 can't be reached by anybody else.
ENV BIND_ADDRESS=0.0.0.0:8080
EXPOSE 8080

# Requests in progress are answered before the program ends.
STOPSIGNAL SIGTERM

HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=3 \
    CMD ["charge-once", "healthcheck"]

# Other commands follow: `docker run … charge-once migrate`.
ENTRYPOINT ["charge-once"]
