//! Power cuts: the state lies in a file system of its own, which is shut down without writing anything more, and
//! the next start is that of another boot.
//!
//! The shutdown is the kernel's own (`EXT4_IOC_SHUTDOWN`): what was not synced is gone, as after a cut. Needs root.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};

use super::machine::Tally;
use super::otter;
use super::rest::{HttpServer, RestChecker, address};
use super::state_folder::StateFolder;
use crate::random::Random;
use xtask::command;

const IMAGE_BYTES: u64 = 96 << 20;
/// `EXT4_IOC_SHUTDOWN` with `EXT4_GOING_FLAGS_NOLOGFLUSH`. Perl is wherever git is.
const SHUTDOWN: &str = "open(my $f, '<', $ARGV[0]) or die $!; my $flags = pack('I', 2); \
    ioctl($f, 0x8004587d, $flags) or die $!;";

/// A file system in a file. It is unmounted when this is dropped.
struct Disk {
    image: PathBuf,
    place: PathBuf,
    mounted: bool,
}

impl Disk {
    fn new(home: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(home.join("disk"))?;
        let image = home.join("disk.img");
        std::fs::File::create(&image)?.set_len(IMAGE_BYTES)?;
        command::output(command::program("mkfs.ext4").arg("-q").arg(&image))?;
        let mut disk = Self { image, place: home.join("disk"), mounted: false };
        disk.mount().context("power cuts need root, loop devices and ext4")?;
        Ok(disk)
    }

    fn mount(&mut self) -> anyhow::Result<()> {
        command::output(command::program("mount").args(["-o", "loop"]).arg(&self.image).arg(&self.place))?;
        self.mounted = true;
        Ok(())
    }

    fn cut_if(&self, wanted: bool) -> anyhow::Result<()> {
        if !wanted {
            return Ok(());
        }
        command::output(command::program("perl").args(["-e", SHUTDOWN]).arg(&self.place)).map(drop)
    }

    fn unmount(&mut self) -> anyhow::Result<()> {
        self.mounted = false;
        let mut left = None;
        // A process that was killed a moment ago may still be on its way out.
        for _ in 0..100 {
            match command::output(command::program("umount").arg(&self.place)) {
                Ok(_) => return Ok(()),
                Err(error) => left = Some(error),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        left.map_or(Ok(()), Err)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.mounted {
            // A run that failed leaves the image to be looked at.
            drop(self.unmount());
        }
    }
}

/// Cuts in turns of a reader over REST and of one that speaks otter, one after the other, on one disk.
pub fn run(home: &Path, count: u64, random: &mut Random) -> anyhow::Result<Vec<Tally>> {
    std::fs::create_dir_all(home)?;
    let mut disk = Disk::new(home)?;
    let (mut world, address, boot) = (StateFolder::new(&disk.place)?, address()?, home.join("boot_id"));
    world.boot = Some(boot.clone());
    let mut of_rest = Tally::new("power cut (ext4, new boot id) in a turn, with a REST reader");
    let mut of_otter = Tally::new("power cut (ext4, new boot id) in a turn, with an otter reader");
    let (mut rest, mut otter) = (RestChecker::default(), otter::OtterChecker::default());
    for round in 0..count + 2 {
        // The last two only look at what the cuts before them have left.
        let cut = round < count;
        std::fs::write(&boot, format!("00000000-0000-4000-8000-{round:012x}\n"))?;
        let (context, time) = (|| format!("cut {round}"), random.moment_within(Duration::from_millis(120)));
        let (tally, ended) = if round % 2 == 0 {
            let door = HttpServer::start(&world, address, &home.join("stderr.log")).with_context(context)?;
            rest.verify(&door, round, true, &mut of_rest).with_context(context)?;
            let ended = rest.work(&door, round, time, &mut of_rest).with_context(context)?;
            disk.cut_if(cut)?;
            door.kill()?;
            (&mut of_rest, ended)
        } else {
            let mut peer = otter::connect(&world).with_context(context)?;
            otter.verify(&mut peer, round, &mut of_otter).with_context(context)?;
            let at = (round, &*world.home.join("workspace"));
            let ended = otter.work(&mut peer, at, time, &mut of_otter).with_context(context)?;
            disk.cut_if(cut)?;
            drop(peer);
            (&mut of_otter, ended)
        };
        disk.unmount()?;
        disk.mount()?;
        ensure!(world.state().exists(), "the state folder did not survive cut {round}");
        tally.runs += u64::from(cut);
        tally.hit += u64::from(cut && !ended);
    }
    disk.unmount()?;
    Ok(vec![of_rest, of_otter])
}
