//! Why something could not be opened or sealed.

/// The text says what to do, and never what a secret was or how close a guess came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    #[error("this is no sealed message, or one of another version; update both ends")]
    Malformed,
    #[error("it was sealed for somebody else, or changed on its way")]
    Forged,
    #[error("it is not newer than what was taken before: it came twice, or in another order")]
    Replayed,
    #[error("it belongs to a conversation that this machine does not hold (any more); begin another")]
    UnknownLane,
    #[error("this device is not paired with this machine, or was revoked; pair it (`ropewalk pair`)")]
    UnknownDevice,
    #[error(
        "it was sealed with a key that is not here: it is from before a device was revoked, or ahead of its key"
    )]
    UnknownGeneration,
    #[error("this is not a public key of the curve P-256")]
    NotAPoint,
    #[error("this is not the id of a machine")]
    NotAMachine,
    #[error("this is no link to pair with")]
    NotALink,
    #[error("the invitation is unknown, used, expired, or was tried too often; ask for another")]
    Uninvited,
    #[error("another machine answered than the one that the link names")]
    AnotherMachine,
    #[error("one key has sealed as much as it may; begin another conversation")]
    Exhausted,
    #[error("the operating system's random generator failed")]
    NoRandom,
}
