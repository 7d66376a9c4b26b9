//! Tests of a hub through its public interface. One binary for all of them, so that shared code is compiled and linked once.

mod people;
mod relay;
