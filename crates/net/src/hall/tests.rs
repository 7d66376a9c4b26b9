//! Who comes in, by what, and for how long.
