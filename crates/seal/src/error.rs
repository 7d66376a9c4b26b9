//! Why something could not be opened or sealed.

/// The text says what to do, and never what a secret was or how close a guess came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    #[error("this is not a sealed message, or it is from another version; update both sides")]
    Malformed,
    #[error("it was sealed for another recipient, or changed on the way")]
    Forged,
    #[error("it was received twice or in the wrong order")]
    Replayed,
    #[error("it belongs to a conversation that this machine does not have (any more); start a new one")]
    UnknownLane,
    #[error("this device is not paired with this machine, or was revoked; pair it (`ropewalk pair`)")]
    UnknownDevice,
    #[error(
        "the key that it was sealed with is not here: it was sealed before a device was revoked, or its key has not arrived yet"
    )]
    UnknownGeneration,
    #[error("this is not a P-256 public key")]
    NotAPoint,
    #[error("this is not a machine id")]
    NotAMachine,
    #[error("this is not a pairing link")]
    NotALink,
    #[error("the invitation is unknown, used, expired, or was tried too often; ask for a new one")]
    Uninvited,
    #[error("the machine that answered is not the one in the link")]
    AnotherMachine,
    #[error("this key has sealed the maximum number of messages; start a new conversation")]
    Exhausted,
    #[error("the operating system's random generator failed")]
    NoRandom,
}
