//! `ringfence`. Called through a link named `docker` it answers wrangler's Docker calls instead.

use std::process::ExitCode;

fn main() -> ExitCode {
    ringfence_cli::cli::main()
}
