//! A hub from outside. One program for all of these tests: what they share is compiled and linked once.

mod people;
mod relay;
