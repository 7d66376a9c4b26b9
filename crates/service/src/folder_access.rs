//! Which folders are open to which caller. The checks may touch a slow disk, so they run off the async threads.
//!
//! A folder that was open to a client may have been replaced since (by a link), so it is checked each time. The owner's
//! sessions work anywhere.

use std::path::{Component, Path, PathBuf};

use engine::SessionHandle;

use crate::{Caller, ServiceError, ServiceRules};

impl ServiceRules {
    /// Whether sessions may work there. The path is as the file system knows it.
    fn opens(&self, real: &Path) -> bool {
        self.places.as_ref().is_none_or(|places| is_below_one(real, places))
    }

    /// The folder of a new session, as the file system knows it.
    pub(crate) fn real_folder(&self, wanted: &Path) -> Result<PathBuf, ServiceError> {
        let not_open = || ServiceError::FolderNotOpen(wanted.to_owned());
        match wanted.canonicalize() {
            Ok(real) if !wanted.is_absolute() || !self.opens(&real) => Err(not_open()),
            Ok(real) if real.is_dir() => Ok(real),
            Err(_) if !wanted.is_absolute() || !self.opens(wanted) => Err(not_open()),
            Ok(_) | Err(_) => Err(ServiceError::CwdNotAFolder(wanted.to_owned())),
        }
    }

    pub(crate) fn check_roots(&self, roots: &[PathBuf]) -> Result<(), ServiceError> {
        for root in roots {
            let real = root.canonicalize().ok().filter(|real| real.is_dir());
            let real = real.ok_or_else(|| ServiceError::NotAFolder(root.clone()))?;
            let allowed = self.allowed_dirs.as_ref();
            if !allowed.is_none_or(|allowed| is_below_one(&real, allowed)) {
                return Err(ServiceError::RootNotAllowed(root.clone()));
            }
        }
        Ok(())
    }

    /// Whether this caller may still open a session that works there.
    pub(crate) fn check_still_open(
        &self,
        caller: &Caller,
        session: &SessionHandle,
    ) -> Result<(), ServiceError> {
        if caller.principal == engine::Principal::local() {
            return Ok(());
        }
        let cwd = (*session.snapshot().cwd).clone();
        let opens = |path: &PathBuf| self.opens(&path.canonicalize().unwrap_or_else(|_| path.clone()));
        match opens(&cwd) && session.roots().iter().all(opens) {
            true => Ok(()),
            false => Err(ServiceError::FolderNotOpen(cwd)),
        }
    }

    /// The folder that a session may move to: inside its own folders, including earlier ones, or inside
    /// those that this server allows.
    pub(crate) fn move_target(
        &self,
        caller: &Caller,
        session: &SessionHandle,
        path: &Path,
    ) -> Result<PathBuf, ServiceError> {
        if path.components().any(|part| part == Component::ParentDir) {
            return Err(ServiceError::ParentInPath);
        }
        let wanted = session.snapshot().cwd.join(path);
        let target = wanted.canonicalize().ok().filter(|real| real.is_dir());
        let target = target.ok_or(ServiceError::NotAFolder(wanted))?;
        let here = [(*session.snapshot().cwd).clone()];
        let allowed = self.allowed_dirs.as_deref().unwrap_or_default();
        if [&here, session.roots(), allowed].iter().any(|folders| is_below_one(&target, folders)) {
            return Ok(target);
        }
        // An earlier folder may have been closed to others than the owner at the machine since, or may come
        // from a history that was imported.
        let may_return = caller.is_owner() || self.opens(&target);
        if may_return && is_below_one(&target, &session.folders()) {
            return Ok(target);
        }
        Err(ServiceError::OutsideSession(target))
    }
}

fn is_below_one(real: &Path, folders: &[PathBuf]) -> bool {
    folders.iter().any(|folder| folder.canonicalize().is_ok_and(|folder| real.starts_with(folder)))
}
