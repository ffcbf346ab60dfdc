# Where the tools are; sourced by every script after `cd` to the repository's top. Changes nothing on disk.
# shellcheck shell=bash disable=SC2034

# shellcheck source=scripts/lib/versions.sh
. scripts/lib/versions.sh

# Tools that take minutes to build live outside the checkout, each in a directory named by its version.
RINGFENCE_CACHE=${RINGFENCE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ringfence}
export RINGFENCE_CACHE

WORKER_BUILD=$RINGFENCE_CACHE/worker-build-$WORKER_BUILD_VERSION/bin/worker-build
WASM_BINDGEN=$RINGFENCE_CACHE/wasm-bindgen-$WASM_BINDGEN_VERSION/bin/wasm-bindgen
WASM_BINDGEN_TEST_RUNNER=$RINGFENCE_CACHE/wasm-bindgen-$WASM_BINDGEN_VERSION/bin/wasm-bindgen-test-runner
CARGO_DENY=$RINGFENCE_CACHE/cargo-deny-$CARGO_DENY_VERSION/bin/cargo-deny

# The pinned node and wrangler before whatever the machine has.
PATH=$PWD/node_modules/.bin:$PATH
export PATH

# Wrangler asks no questions and sends nothing.
export WRANGLER_SEND_METRICS=false CI=${CI:-1}

say() { printf '%s\n' "$*" >&2; }

# fail MESSAGE: the one way a script gives up.
fail() {
  say "error: $*"
  exit 1
}
