//! Files and commands with real ones. One program for all of these tests: what they share is compiled and linked once.

mod fence;
mod files;
mod git;
mod run;
