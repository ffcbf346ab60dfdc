# Every tool's exact version, in one place. Rust's stable toolchain is in rust-toolchain.toml, the npm tools in
# package.json, the crates in Cargo.lock.
# shellcheck shell=bash disable=SC2034

# The Worker bundle is built with unwinding panics, which needs a nightly that rebuilds std.
NIGHTLY=nightly-2026-10-30

# Must equal the `worker` crate's version in Cargo.toml.
WORKER_BUILD_VERSION=0.8.7

# Must equal the `wasm-bindgen` crate's version in Cargo.lock exactly: the two share an unstable format.
WASM_BINDGEN_VERSION=0.2.130

CARGO_DENY_VERSION=0.20.2

# Must equal the node packages' version in package.json.
NODE_VERSION=22.23.3
