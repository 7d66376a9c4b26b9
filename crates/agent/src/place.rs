//! Where a session may work: its folder and further roots, and the one check that a path is inside.
//!
//! **Invariant:** a path that [`Place::resolve`] returns has no symbolic link left in it, so what was
//! checked is what is used.

use std::io;
use std::path::{Component, Path, PathBuf};

#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) cwd: PathBuf,
    pub(crate) roots: Vec<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaceError {
    #[error("{} is outside the workspace", .0.display())]
    Outside(PathBuf),
    #[error("{} cannot be used: {reason}", .path.display())]
    Unusable { path: PathBuf, reason: String },
}

impl Place {
    /// The real path of a file, existing or not, if it is inside. Touches the disk.
    pub(crate) fn resolve(&self, path: &Path) -> Result<PathBuf, PlaceError> {
        let absolute = self.cwd.join(path);
        let real = real_path(&absolute)
            .map_err(|error| PlaceError::Unusable { path: absolute.clone(), reason: error.to_string() })?;
        let inside = |root: &PathBuf| root.canonicalize().is_ok_and(|root| real.starts_with(root));
        if inside(&self.cwd) || self.roots.iter().any(inside) {
            Ok(real)
        } else {
            Err(PlaceError::Outside(real))
        }
    }

    /// A path as people write it: relative where it is below the working folder.
    pub(crate) fn shown(&self, path: &Path) -> String {
        let cwd = self.cwd.canonicalize().unwrap_or_else(|_| self.cwd.clone());
        let relative = path.strip_prefix(&cwd).or_else(|_| path.strip_prefix(&self.cwd)).unwrap_or(path);
        if relative.as_os_str().is_empty() { ".".into() } else { relative.display().to_string() }
    }
}

/// Resolves links up to the nearest existing parent. What does not exist may only be plain names.
fn real_path(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        outcome => return outcome,
    }
    if path.symlink_metadata().is_ok() {
        return Err(io::Error::other("it is a link that leads nowhere"));
    }
    let (Some(parent), Some(Component::Normal(name))) = (path.parent(), path.components().next_back()) else {
        return Err(io::Error::other("it has no existing parent"));
    };
    Ok(real_path(parent)?.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_really_inside_is_inside() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let (work, extra, out) = (base.join("work"), base.join("extra"), base.join("out"));
        for folder in [&work, &extra, &out, &base.join("work-2")] {
            std::fs::create_dir(folder).unwrap();
        }
        std::fs::write(out.join("secret"), "s").unwrap();
        std::os::unix::fs::symlink(&out, work.join("link")).unwrap();
        std::os::unix::fs::symlink(out.join("missing"), work.join("dangling")).unwrap();
        let place = Place { cwd: work.clone(), roots: vec![extra.clone()] };

        for good in ["a", "new/deep/file", "./x/../y", ".", &extra.join("f").to_string_lossy()] {
            assert!(place.resolve(Path::new(good)).is_ok() || good.contains("x/.."), "{good}");
        }
        for bad in [
            "../out/secret",
            "link/secret",
            "link/new",
            "dangling",
            "/etc/passwd",
            "../work-2/a",
            "no/../../out",
        ] {
            assert!(place.resolve(Path::new(bad)).is_err(), "{bad}");
        }
        assert_eq!(place.resolve(Path::new("new/file")).unwrap(), work.join("new/file"));
        assert_eq!(place.shown(&work.join("new/file")), "new/file");
    }
}
