//! The last steps of a process before it becomes the command.

use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

use super::channel::{FenceHandles, InnerEnd};
use super::file_system_layout::FenceLayout;
use super::{FenceError, landlock, read_nothing, seccomp_filter, step, sys};
use crate::helper_request::{HelperRequest, Input};

/// Files that a command may have open; more than any build needs.
const FILES_MAX: u64 = 4096;

/// A command in the form that the kernel takes.
pub(super) struct PreparedCommand {
    /// The paths where the program may be, in order.
    programs: Vec<CString>,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    cwd: PathBuf,
    processes_max: u64,
    file_bytes_max: u64,
    pub(super) input: Input,
}

impl PreparedCommand {
    pub(super) fn new(spec: &HelperRequest) -> Result<Self, FenceError> {
        let invalid = |_| FenceError::NotStarted(libc::EINVAL);
        let text = |text: &OsStr| CString::new(text.as_bytes()).map_err(invalid);
        let name = spec.arguments.first().ok_or(FenceError::NotStarted(libc::EINVAL))?;
        let programs = program_paths(name, spec.variable("PATH"));
        let variable = |(key, value): &(OsString, OsString)| {
            CString::new([key.as_bytes(), b"=", value.as_bytes()].concat()).map_err(invalid)
        };
        Ok(Self {
            programs: programs.iter().map(|place| text(place.as_os_str())).collect::<Result<_, _>>()?,
            arguments: spec.arguments.iter().map(|argument| text(argument)).collect::<Result<_, _>>()?,
            environment: spec.environment.iter().map(variable).collect::<Result<_, _>>()?,
            cwd: spec.cwd.clone(),
            processes_max: spec.processes_max,
            file_bytes_max: spec.file_bytes_max,
            input: spec.input,
        })
    }

    /// Applies the fence to this process and becomes the command. Returns only on an error.
    pub(super) fn run_fenced(&self, layout: &FenceLayout, channel: &InnerEnd) -> FenceError {
        let fenced = self.set_up_process().and_then(|()| self.apply_fence(layout, channel));
        match fenced {
            Ok(()) => self.exec(),
            Err(error) => error,
        }
    }

    /// The same without a fence.
    pub(super) fn run_unfenced(&self, channel: &InnerEnd) -> FenceError {
        let tied = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        let settled = step("tying the command to its helper", tied.map_err(Into::into)).and_then(|()| {
            self.set_up_process()?;
            step("closing files", sys::close_all_but(&[channel.as_fd().as_raw_fd()]))
        });
        match settled {
            Ok(()) => self.exec(),
            Err(error) => error,
        }
    }

    fn set_up_process(&self) -> Result<(), FenceError> {
        let start = |result: rustix::io::Result<()>| {
            result.map_err(|error| FenceError::NotStarted(error.raw_os_error()))
        };
        start(rustix::process::setsid().map(drop))?;
        start(rustix::process::chdir(&self.cwd))?;
        match self.input {
            Input::Terminal => {
                let terminal = rustix::stdio::stdout();
                start(rustix::process::ioctl_tiocsctty(terminal))?;
                start(rustix::stdio::dup2_stdin(terminal))?;
            }
            // The /dev/null that this process was given was opened outside, where its permissions could be changed.
            Input::Nothing => step("opening /dev/null", read_nothing())?,
            Input::Handed => {}
        }
        self.limit(Resource::Core, 0)?;
        self.limit(Resource::Fsize, self.file_bytes_max)?;
        let files = getrlimit(Resource::Nofile);
        let soft = files.maximum.map_or(FILES_MAX, |maximum| maximum.min(FILES_MAX));
        start(setrlimit(Resource::Nofile, Rlimit { current: Some(soft), maximum: files.maximum }))
    }

    fn limit(&self, resource: Resource, value: u64) -> Result<(), FenceError> {
        let maximum = getrlimit(resource).maximum.map_or(value, |maximum| maximum.min(value));
        let limit = Rlimit { current: Some(maximum), maximum: Some(maximum) };
        step("limiting the command", setrlimit(resource, limit).map_err(Into::into))
    }

    fn apply_fence(&self, layout: &FenceLayout, channel: &InnerEnd) -> Result<(), FenceError> {
        // The supervisor counts and reports; this limit stops what grows faster than it counts. Inside the namespace only
        // the command's own processes count: outside, all of the user's would.
        self.limit(Resource::Nproc, self.processes_max + self.processes_max / 8 + 8)?;
        step("closing files", sys::close_all_but(&[channel.as_fd().as_raw_fd()]))?;
        step("dropping capabilities", sys::drop_capabilities())?;
        step("giving up new privileges", rustix::thread::set_no_new_privs(true).map_err(Into::into))?;
        let terminal = (self.input == Input::Terminal).then(rustix::stdio::stdout);
        landlock::restrict(layout, terminal)?;
        let folder = |path: &Path, flags| {
            let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | flags;
            step("opening the view", open(path, flags, Mode::empty()).map_err(Into::into))
        };
        let root = folder(Path::new("/"), OFlags::PATH)?;
        let processes = folder(Path::new("/proc"), OFlags::RDONLY)?;
        if !sys::notify_sizes_fit() {
            return Err(FenceError::NoFence(
                "the kernel's seccomp notifications have an unknown form".into(),
            ));
        }
        let listener = step(
            "filtering system calls",
            sys::install_filter(&mut seccomp_filter::program(!layout.hidden.is_empty())),
        )?;
        step("handing over to the helper", channel.started(&FenceHandles { listener, root, processes }))
    }

    fn exec(&self) -> FenceError {
        if let Err(error) = sys::restore_signals() {
            return FenceError::NotStarted(error.raw_os_error().unwrap_or(libc::EINVAL));
        }
        let mut found = libc::ENOENT;
        for program in &self.programs {
            let error = sys::exec(program, &self.arguments, &self.environment).raw_os_error();
            match error.unwrap_or(libc::ENOENT) {
                libc::ENOENT | libc::ENOTDIR => {}
                // Another folder may have one that can be run.
                libc::EACCES => found = libc::EACCES,
                other => return FenceError::NotStarted(other),
            }
        }
        FenceError::NotStarted(found)
    }
}

/// Where a program may be: at its path, or under its name in one of the folders for programs.
fn program_paths(name: &OsStr, path: Option<&OsString>) -> Vec<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return vec![name.into()];
    }
    let default = OsString::from_vec(b"/usr/bin:/bin".to_vec());
    std::env::split_paths(path.unwrap_or(&default)).map(|folder| folder.join(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_looked_for_like_a_shell_does() {
        let path = OsString::from("/a:/b");
        assert_eq!(program_paths(OsStr::new("x"), Some(&path)), [Path::new("/a/x"), Path::new("/b/x")]);
        assert_eq!(program_paths(OsStr::new("./x"), Some(&path)), [Path::new("./x")]);
        assert_eq!(program_paths(OsStr::new("x"), None), [Path::new("/usr/bin/x"), Path::new("/bin/x")]);
    }
}
