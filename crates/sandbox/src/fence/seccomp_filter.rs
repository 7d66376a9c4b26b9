//! The seccomp program: which system calls are refused at once, which are judged, and which pass.
//!
//! One program does both, because with two programs the stricter verdict wins: the second would never see a call that the
//! first one fails. So calls that must be reported are sent to the supervisor, which fails them. If the supervisor is gone,
//! the kernel fails them.
//!
//! **Invariant:** everything that decides about a call is a number in a register. What a pointer points to can be changed by
//! another thread between the judgement and the call.

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter,
};

use super::supervised_calls::{CALLS, CallShape, OpenFlags, TERMINAL_COMMANDS};

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;
/// Marks calls of the x32 interface, which would get around every number of the table.
#[cfg(target_arch = "x86_64")]
const X32: u32 = 0x4000_0000;
/// Flags of `clone` and `unshare` that ask for a new namespace, the one for time included.
pub(super) const NEW_NAMESPACE: u32 = 0x7e02_0080;
/// The same for `clone`, where the lowest bits are a signal.
pub(super) const NEW_NAMESPACE_IN_CLONE: u32 = 0x7e02_0000;

/// The part of a socket's type that is not flags.
pub(super) const SOCKET_KIND: u32 = 0xf;

/// Where the kernel keeps the number, the architecture and the arguments.
const NUMBER: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;

/// The low half of an argument. The kernel looks at no more of the ones judged here.
const fn argument(nth: u32) -> u32 {
    16 + 8 * nth
}

/// Flags of a call that opens a file other than to read what is there: the two lowest bits, creating,
/// shortening, and files without a name.
const OPENS_TO_CHANGE: u32 = 0b11 | libc::O_CREAT as u32 | libc::O_TRUNC as u32 | 0o20_000_000;

/// With `reads`, opening files for reading is sent to the supervisor too. It is by far the most frequent call, and
/// sending it costs more than the call itself.
pub(super) fn program(reads: bool) -> Vec<sock_filter> {
    let mut program = vec![
        load(ARCHITECTURE_AT),
        jump(BPF_JEQ, ARCHITECTURE, 1, 0),
        verdict(libc::SECCOMP_RET_KILL_PROCESS),
        load(NUMBER),
    ];
    #[cfg(target_arch = "x86_64")]
    program.extend([jump(BPF_JSET, X32, 0, 1), verdict(libc::SECCOMP_RET_KILL_PROCESS)]);
    for call in CALLS {
        let Ok(number) = u32::try_from(call.number) else { continue };
        let judged = judged(&call.shape, reads);
        let skip = u8::try_from(judged.len()).unwrap_or(u8::MAX);
        program.push(jump(BPF_JEQ, number, 0, skip));
        program.extend(judged);
    }
    // The flags of this call are behind a pointer. Libraries fall back to the older one.
    let unknown = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    let clone3 = u32::try_from(libc::SYS_clone3).unwrap_or(u32::MAX);
    program.extend([jump(BPF_JEQ, clone3, 0, 1), verdict(unknown), verdict(libc::SECCOMP_RET_ALLOW)]);
    program
}

/// The instructions for a call of this shape. They must not run past their end.
fn judged(shape: &CallShape, reads: bool) -> Vec<sock_filter> {
    const SEEN: u32 = libc::SECCOMP_RET_USER_NOTIF;
    const PASSES: u32 = libc::SECCOMP_RET_ALLOW;
    match shape {
        CallShape::Open { flags: OpenFlags::Argument(nth), .. } if !reads => {
            let nth = u32::try_from(*nth).unwrap_or(0);
            vec![load(argument(nth)), jump(BPF_JSET, OPENS_TO_CHANGE, 0, 1), verdict(SEEN), verdict(PASSES)]
        }
        CallShape::Clone { flags } => {
            vec![load(argument(0)), jump(BPF_JSET, *flags, 0, 1), verdict(SEEN), verdict(PASSES)]
        }
        CallShape::Ioctl => {
            let mut program = vec![load(argument(1))];
            for command in TERMINAL_COMMANDS {
                program.extend([jump(BPF_JEQ, command, 0, 1), verdict(SEEN)]);
            }
            program.push(verdict(PASSES));
            program
        }
        // A process signals its own group, or everything it may, without saying whom.
        CallShape::Kill => {
            vec![load(argument(0)), mask(0x8000_0000), jump(BPF_JEQ, 0, 0, 1), verdict(SEEN), verdict(PASSES)]
        }
        // A stream stays connected to its other end. A datagram socket can be connected again, to any
        // Unix socket of the machine.
        CallShape::Pair => vec![
            load(argument(0)),
            jump(BPF_JEQ, libc::AF_UNIX as u32, 0, 4),
            load(argument(1)),
            mask(SOCKET_KIND),
            jump(BPF_JEQ, libc::SOCK_STREAM as u32, 2, 0),
            jump(BPF_JEQ, libc::SOCK_SEQPACKET as u32, 1, 0),
            verdict(SEEN),
            verdict(PASSES),
        ],
        _ => vec![verdict(SEEN)],
    }
}

fn load(offset: u32) -> sock_filter {
    sock_filter { code: (BPF_LD | BPF_W | BPF_ABS) as u16, jt: 0, jf: 0, k: offset }
}

fn mask(bits: u32) -> sock_filter {
    sock_filter { code: (BPF_ALU | BPF_AND | BPF_K) as u16, jt: 0, jf: 0, k: bits }
}

fn jump(kind: u32, value: u32, if_so: u8, if_not: u8) -> sock_filter {
    sock_filter { code: (BPF_JMP | kind | BPF_K) as u16, jt: if_so, jf: if_not, k: value }
}

fn verdict(value: u32) -> sock_filter {
    sock_filter { code: (BPF_RET | BPF_K) as u16, jt: 0, jf: 0, k: value }
}
