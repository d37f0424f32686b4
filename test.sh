#!/usr/bin/env bash
# Everything that must hold, in one command: about 50 minutes on two cores. Installs what is missing (by
# apt, pip, npm, cargo, Go and Maven); needs rustup (https://rustup.rs) to be there.
# Usage: ./test.sh [quick | soak | --no-bench]
#   quick       five minutes once everything is built: format, lints, tests of the processor, a hundred seeds
#   soak        what takes hours: a fleet for an hour, 100,000 seeds, 50 demonstrations, the race, an hour of fuzzing
#   --no-bench  everything without the benchmark
set -euo pipefail
cd "$(dirname "$0")"

case "${1:-}" in
  "" | --no-bench | quick | --quick | soak) ;;
  *)
    echo "usage: ./test.sh [quick | soak | --no-bench]" >&2
    exit 2
    ;;
esac

bench=yes
[ "${1:-}" != --no-bench ] || bench=no

# The stage that is running, when it began, and how long those before it took.
stage="" begun=$SECONDS times=""
say() {
  if [ -n "$stage" ]; then
    times+=$(printf '%5d s  %s' $((SECONDS - begun)) "$stage")$'\n'
  fi
  stage=$* begun=$SECONDS
  printf '\n== %s\n' "$*"
}
# beside NAME COMMAND...: starts a stage of pure computing that the following stages, which mostly wait, leave room for. At
# the lowest priority, so that it takes nothing from them. The command may be a function: it ends with its first failure.
logs=$(mktemp -d)
declare -A pids=()
beside() {
  local name=$1
  shift
  # Job control gives it a process group of its own; a session of its own would make its priority meaningless.
  set -m
  (
    trap - EXIT
    renice -n 19 "$BASHPID" >/dev/null
    "$@"
  ) >"$logs/$name" 2>&1 </dev/null &
  set +m
  pids[$name]=$!
}
# finish NAME: waits for it, shows what it printed, and fails if it failed.
finish() {
  local code=0
  say "$1: what is left of it"
  wait "${pids[$1]}" || code=$?
  unset "pids[$1]"
  cat "$logs/$1"
  return $code
}
ended() {
  local code=$?
  for pid in "${pids[@]}"; do kill -- "-$pid" 2>/dev/null || true; done
  rm -rf "$logs"
  [ $code -eq 0 ] || times+=$(printf '%5d s  %s: FAILED' $((SECONDS - begun)) "$stage")$'\n'
  printf '\n%s%5d s  in all\n' "$times" "$SECONDS"
}
trap ended EXIT

say "tools"
if ! command -v cargo >/dev/null; then
  echo "cargo is missing: install the newest stable Rust with rustup, then run this again" >&2
  exit 2
fi
if ! command -v cc >/dev/null; then
  apt-get update -qq && apt-get install -y -qq gcc libc6-dev
fi
cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt
cargo clippy --version >/dev/null 2>&1 || rustup component add clippy
cargo --version

say "format"
cargo fmt --all --check

say "lints"
cargo clippy --workspace --all-targets --locked -- -D warnings

if [ "${1:-}" = "soak" ]; then
  say "a fleet for an hour"
  scripts/soak 60
  say "simulation: 100,000 seeds"
  cargo run --release --locked --quiet -p changefeed-sim -- --seeds 0..100000
  say "demonstration: nothing lost in 50 runs"
  cargo build --release --locked --quiet -p changefeed-cli
  for run in $(seq 50); do
    "${CARGO_TARGET_DIR:-target}/release/changefeed" demo --json --seconds 10 --seed "$run" 2>/dev/null
  done
  say "Azure Cosmos DB with the next version of its SDK, and with the newest"
  scripts/test-cosmos-sdk 1.1.0-beta.1 all
  scripts/test-cosmos-sdk newest all
  say "the race with Java's processor, quick"
  bench/race --quick --json "${CARGO_TARGET_DIR:-target}/race.json"
  say "fuzzing, five minutes for each target"
  scripts/fuzz 300
  say "all good (soak)"
  exit 0
fi

if [ "${1:-}" = "quick" ] || [ "${1:-}" = "--quick" ]; then
  say "tests of the contract, the processor and the simulation"
  cargo test --locked -p changefeed-core -p changefeed -p changefeed-sim -p changefeed-testkit
  say "simulation: 100 seeds"
  cargo run --release --locked --quiet -p changefeed-sim -- --seeds 0..100
  say "all good (quick)"
  exit 0
fi

say "rows of the race"
command -v python3 >/dev/null || { apt-get update -qq && apt-get install -y -qq python3; }
PYTHONDONTWRITEBYTECODE=1 python3 -m unittest discover -s bench

say "who may use whom"
scripts/check-dependencies

say "alert rules"
scripts/check-alerts

programs=${CARGO_TARGET_DIR:-target}/release

release="programs"
simulation="simulation: 1,000 seeds of crashes, stalls, lost answers, splits and merges; every planted bug is found"
builds="documentation, public API, the oldest Rust that is promised; the next SDK of Azure Cosmos DB; programs of later stages"
fuzzing="fuzzing, twenty seconds for each target"

# One by one: together they would get each other's features, planted bugs among them. Each of the last crates is compiled on
# one core alone.
build_programs() {
  cargo build --release --locked --quiet -p changefeed-sim
  cargo build --release --locked --quiet -p changefeed-cli
}
# Tests wait most of the time and leave the cores to what only computes.
compute_simulation() {
  "$programs/changefeed-sim" --seeds 0..1000
  "$programs/changefeed-sim" --mutants
}
compute_builds() {
  scripts/check-rust-version
  scripts/run-examples build
  CHANGEFEED_BIN="$programs/changefeed" sdk-tests/run build
  scripts/fuzz build
  [ "$bench" = no ] || cargo build --release --locked --quiet -p changefeed-bench
  # Last, since they need the folder that the tests are built in.
  scripts/test-cosmos-sdk 1.1.0-beta.1
  RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet
  scripts/public-api
}

# One command for all crates, so that the SDK of Azure Cosmos DB is built once.
say "tests: build"
tests=(--workspace --features changefeed-cli/cosmos --locked --no-fail-fast)
beside "$release" build_programs
cargo test "${tests[@]}" --no-run
finish "$release"

say "tests"
beside "$simulation" compute_simulation
beside "$builds" compute_builds
cargo test "${tests[@]}"
finish "$builds"

say "examples"
scripts/run-examples "${CARGO_TARGET_DIR:-target}/debug/examples"

say "unmodified SDKs against the server: Python, JavaScript, Rust, Java; KEDA's scaler"
beside "$fuzzing" scripts/fuzz 20
CHANGEFEED_BIN="$programs/changefeed" sdk-tests/run
finish "$simulation"
finish "$fuzzing"

if [ "$bench" = yes ]; then
  say "benchmark: every row once, as short as possible"
  cargo run --release --locked --quiet -p changefeed-bench -- --smoke
fi

say "all good"
