//! The helper as a program of its own, for this crate's tests. The shipped program is its own helper.

use std::process::ExitCode;

fn main() -> ExitCode {
    sandbox::helper_main()
}
