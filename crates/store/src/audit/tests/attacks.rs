//! Verification reports every change to the files, and where it is.

use std::fs;
use std::fs::OpenOptions;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::audit::row::{self, AuditRow, GENESIS};
use crate::audit::verify::{VerifyProgress, check, seal};
use crate::audit::{AuditKeyError, VerifyError, acknowledge, chain_files};

const ROWS: u64 = 10_000;

/// A chain in memory: its bytes, its lines, and what each line follows.
struct Long {
    key: AuditKey,
    bytes: Vec<u8>,
    lines: Vec<Vec<u8>>,
    prevs: Vec<String>,
}

fn long() -> Long {
    let key = AuditKey::of(&[b'7'; 64]);
    let mut prevs = vec![GENESIS.to_owned()];
    let mut bytes = Vec::new();
    for seq in 1..=ROWS {
        let hmac = row::write(&key, prevs.last().unwrap(), &at(seq, "one").entry, &mut bytes);
        prevs.push(hmac);
    }
    let lines = chain_files::lines(&bytes).0.map(<[u8]>::to_vec).collect();
    Long { key, bytes, lines, prevs }
}

impl Long {
    /// What a verification of the whole file says of these bytes.
    fn line_of_first_flaw(&self, bytes: &[u8]) -> Option<u64> {
        check(&self.key, &mut VerifyProgress::default(), bytes, |_, _| {}).err().map(|(line, _)| line)
    }

    fn is_genuine(&self, prev: &str, line: &[u8]) -> bool {
        row::signature(&self.key, prev, line).is_some() && row::read(&self.key, prev, line).is_ok()
    }

    /// Changes every byte of a line, and its end, one at a time. A verification comes to this line with
    /// everything before it untouched, so the file is refused here exactly if this line is.
    fn check_line(&self, index: usize) {
        let (prev, line) = (&self.prevs[index], &self.lines[index]);
        assert!(self.is_genuine(prev, line));
        let mut changed = line.clone();
        for position in 0..line.len() {
            let bit = 1 << ((position + index) % 8);
            changed[position] ^= bit;
            // A line feed in the middle ends the line there.
            let seen = &changed[..memchr::memchr(b'\n', &changed).unwrap_or(changed.len())];
            assert!(!self.is_genuine(prev, seen), "line {index}, byte {position}");
            changed[position] ^= bit;
        }
        if let Some(next) = self.lines.get(index + 1) {
            let joined = [line, &b"\x0b"[..], next].concat();
            assert!(!self.is_genuine(prev, &joined), "the end of line {index}");
        }
    }
}

#[test]
fn every_single_byte_change_of_ten_thousand_rows_is_found() {
    let long = long();
    assert!(long.bytes.len() > 4_000_000, "{}", long.bytes.len());
    let half = long.lines.len() / 2;
    std::thread::scope(|scope| {
        scope.spawn(|| (0..half).for_each(|index| long.check_line(index)));
        scope.spawn(|| (half..long.lines.len()).for_each(|index| long.check_line(index)));
    });
    // And in the whole file it is this line that is named.
    for index in [0, 1, 4_999, 9_998, 9_999] {
        let start: usize = long.lines[..index].iter().map(|line| line.len() + 1).sum();
        for within in [0, 17, long.lines[index].len() - 1] {
            let mut bytes = long.bytes.clone();
            bytes[start + within] ^= 1;
            assert_eq!(long.line_of_first_flaw(&bytes), Some(index as u64 + 1));
        }
    }
    assert_eq!(long.line_of_first_flaw(&long.bytes), None);
}

#[test]
fn every_dropped_doubled_or_moved_row_of_ten_thousand_is_found() {
    let long = long();
    for (index, line) in long.lines.iter().enumerate() {
        let prev = &long.prevs[index];
        assert!(!long.is_genuine(&long.prevs[index + 1], line), "line {index}, twice");
        // Dropped, or swapped with the next one: what comes instead of it is not genuine here.
        for other in [index + 1, index + 2, (index * 7919) % long.lines.len()] {
            if let Some(other) = long.lines.get(other).filter(|other| *other != line) {
                assert!(!long.is_genuine(prev, other), "line {index}, another in its place");
            }
        }
    }
}

#[test]
fn the_signature_has_only_one_place() {
    let world = TestChain::with_rows(3, 3);
    let file = world.file(0);
    let mut changed = lines(&file);
    let hmac = AuditRow::parse(changed[1].as_bytes()).unwrap().hmac;
    let field = format!(", \"hmac\": \"{hmac}\"");
    let without = changed[1].replace(&field, "");
    changed[1] = format!("{}{field}}}", without.strip_suffix('}').unwrap());
    write_lines(&file, &changed);
    world.check_broken(&file, 2);
}

#[test]
fn changes_on_disk_are_named_by_file_and_line() {
    let attack = |change: &dyn Fn(&mut Vec<String>), line: u64| {
        let world = TestChain::with_rows(30, 10);
        world.check_whole(30);
        let file = world.file(1);
        let mut changed = lines(&file);
        change(&mut changed);
        write_lines(&file, &changed);
        world.check_broken(&file, line);
    };
    attack(&|lines| drop(lines.remove(3)), 4);
    attack(&|lines| drop(lines.remove(0)), 1);
    attack(&|lines| lines.insert(3, lines[3].clone()), 5);
    attack(&|lines| lines.swap(3, 4), 4);
    attack(&|lines| lines.swap(0, 9), 1);
    attack(&|lines| lines.insert(3, String::new()), 4);
    attack(&|lines| lines.insert(3, lines[3].replace("shell", "read")), 4);
    attack(&|lines| lines[5] = lines[5].replace("\"turn\": 4", "\"turn\": 5"), 6);
    attack(&|lines| lines[5] = lines[5].replace("\", \"", "\",  \""), 6);
    attack(&|lines| lines[9].push(' '), 10);
}

/// The row that follows is not genuine any more, so what is missing is noticed where it is missing.
#[test]
fn a_missing_file_is_found() {
    for missing in 0..2 {
        let world = TestChain::with_rows(30, 10);
        fs::remove_file(world.file(missing)).unwrap();
        world.check_broken(&world.file(missing + 1), 1);
    }
    let world = TestChain::with_rows(30, 10);
    fs::remove_file(world.file(2)).unwrap();
    let report = world.verify();
    assert!(report.broken.is_none() && report.rows == 20);
    assert_eq!((report.cut[0].witness.as_str(), report.cut[0].expected_rows), ("head.json", 30));
}

#[test]
fn every_length_that_a_chain_is_cut_to_is_found() {
    let world = TestChain::with_rows(20, 20);
    let whole = fs::read(world.file(0)).unwrap();
    for length in (0..whole.len()).rev() {
        // Only the last rows byte by byte; before that, whole rows.
        if length < whole.len() - 1_000 && whole[length] != b'\n' {
            continue;
        }
        fs::write(world.file(0), &whole[..length]).unwrap();
        assert!(!world.verify().is_whole(), "{length}");
    }
    fs::write(world.file(0), &whole).unwrap();
    world.check_whole(20);
    let mut last = whole;
    *last.last_mut().unwrap() = b'\x0b';
    fs::write(world.file(0), &last).unwrap();
    world.check_broken(&world.file(0), 20);
}

#[test]
fn a_head_that_is_gone_or_changed_is_found() {
    let world = TestChain::with_rows(20, 20);
    let head = world.folder().join("head.json");
    let text = fs::read(&head).unwrap();
    for position in 0..text.len() {
        let mut changed = text.clone();
        changed[position] ^= 1;
        fs::write(&head, changed).unwrap();
        assert!(!world.verify().is_whole(), "{position}");
    }
    fs::remove_file(&head).unwrap();
    assert_eq!(world.verify().cut[0].witness, "no head.json");
    // Other signed files are not heads.
    fs::copy(world.folder().join("cursors.json"), &head).ok();
    assert!(!world.verify().is_whole());
}

#[test]
fn a_chain_that_was_cut_stays_cut_when_it_goes_on() {
    let world = TestChain::with_rows(20, 10);
    fs::remove_file(world.file(1)).unwrap();
    world.chain().append(after_days(2), &[at(15, "one"), at(21, "one")]).unwrap();
    let report = world.verify();
    assert!(report.broken.is_none(), "{report:?}");
    assert_eq!((report.cut[0].expected_rows, report.cut[0].found_rows), (20, 10));
    // What was cut and is still known is written again.
    assert_eq!(world.positions("one").split_off(9), [15, 21]);
    fs::remove_file(world.folder().join("head.json")).unwrap();
    world.chain().append(after_days(2), &[at(22, "one")]).unwrap();
    assert_eq!(world.verify().cut.len(), 2);
}

/// Whoever can write to the folder can go back to an older state of all of it. What is kept elsewhere
/// tells.
#[test]
fn a_rewound_folder_is_found_by_a_seal_kept_elsewhere() {
    let world = TestChain::with_rows(20, 10);
    let older = tempfile::tempdir().unwrap();
    for name in [world.file(0), world.file(1), world.folder().join("head.json")] {
        fs::copy(&name, older.path().join(name.file_name().unwrap())).unwrap();
    }
    world.chain().append(after_days(1), &[at(21, "one")]).unwrap();
    let anchor = seal(&world.key, &world.verify().head);
    let verified = || verify(&world.folder(), &world.key, Some(anchor.as_bytes())).unwrap();
    assert!(verified().is_whole());
    world.chain().append(after_days(1), &[at(22, "one")]).unwrap();
    assert!(verified().is_whole());
    for entry in fs::read_dir(older.path()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), world.folder().join(entry.file_name())).unwrap();
    }
    world.check_whole(20);
    let cut = &verified().cut[0];
    assert_eq!((cut.witness.as_str(), cut.expected_rows, cut.found_rows), ("the seal", 21, 20));
    let forged = anchor.replace("\"rows\": 21", "\"rows\": 20");
    let refused = verify(&world.folder(), &world.key, Some(forged.as_bytes()));
    assert!(matches!(refused, Err(VerifyError::Anchor(_))));
}

#[test]
fn another_key_verifies_nothing() {
    let world = TestChain::with_rows(3, 3);
    let other = AuditKey::of(&[b'8'; 64]);
    assert!(!verify(&world.folder(), &other, None).unwrap().is_whole());
}

#[test]
fn compressed_files_stay_part_of_the_chain() {
    let world = TestChain::with_rows(50, 10);
    // The fifth day is the newest: it stays, however old.
    let mut chain = world.chain();
    chain.append(after_days(92), &[at(51, "one")]).unwrap();
    let archived = |day: i64| world.folder().join("archive").join(format!("{}.gz", shown(&world.file(day))));
    for day in 0..2 {
        assert!(archived(day).exists() && !world.file(day).exists(), "{day}");
    }
    assert!(world.file(2).exists() && !archived(2).exists());
    world.check_whole(51);
    // Without its cursors the chain is read from the archive on.
    fs::remove_file(world.folder().join("cursors.json")).ok();
    world.chain().append(after_days(92), &[at(3, "one"), at(52, "one")]).unwrap();
    world.check_whole(52);
    let whole = fs::read(archived(1)).unwrap();
    for position in (10..whole.len() - 8).step_by(7) {
        let mut changed = whole.clone();
        changed[position] ^= 1;
        fs::write(archived(1), changed).unwrap();
        let broken = world.verify().broken.expect("a broken archive");
        assert!(broken.file.starts_with("archive/"), "{broken:?}");
    }
    fs::remove_file(archived(1)).unwrap();
    world.check_broken(&world.file(2), 1);
}

#[test]
fn an_archive_that_was_cut_short_by_a_kill_is_finished_later() {
    let world = TestChain::with_rows(30, 10);
    let copy = fs::read(world.file(0)).unwrap();
    let archive = world.folder().join("archive");
    assert_eq!(crate::audit::archive(&world.folder(), after_days(95), 90).unwrap().len(), 2);
    fs::write(world.file(0), copy).unwrap();
    world.check_whole(30);
    fs::write(archive.join("2026-01-01.jsonl.part"), "half").unwrap();
    assert_eq!(crate::audit::archive(&world.folder(), after_days(95), 90).unwrap(), [shown(&world.file(0))]);
    world.check_whole(30);
    assert_eq!(crate::audit::archive(&world.folder(), after_days(95), 90).unwrap(), Vec::<String>::new());
}

#[test]
fn junk_at_the_end_is_put_aside_and_told_of() {
    let world = TestChain::with_rows(3, 3);
    let mut file = OpenOptions::new().append(true).open(world.file(0)).unwrap();
    std::io::Write::write_all(&mut file, b"{\"actor\": \"age").unwrap();
    let report = world.verify();
    assert!(report.is_whole() && !report.torn[0].sealed && report.torn[0].bytes == 14, "{report:?}");
    world.chain().append(START, &[at(4, "one")]).unwrap();
    let report = world.verify();
    assert!(report.is_whole() && report.torn[0].sealed && report.rows == 5, "{report:?}");
    let kept: Vec<_> = fs::read_dir(world.folder().join("torn")).unwrap().collect();
    assert_eq!(fs::read(kept[0].as_ref().unwrap().path()).unwrap(), b"{\"actor\": \"age");
}

/// A world whose key lies in a file, with its mark beside it.
fn kept() -> TestChain {
    let mut world = TestChain::new();
    world.key = AuditKey::load_or_create(&world.home.path().join("audit.key"), &world.folder()).unwrap();
    world
}

fn cut(world: &TestChain) -> Vec<(u64, u64)> {
    world.verify().cut.iter().map(|cut| (cut.expected_rows, cut.found_rows)).collect()
}

/// The key and its mark are outside the folder, so whoever can do anything in the folder is found out.
#[test]
fn a_chain_that_was_removed_truncated_or_put_back_is_told_of_until_that_is_acknowledged() {
    type Attack = fn(&TestChain);
    let attacks: [(&str, Attack); 4] = [
        ("removed", |world| fs::remove_dir_all(world.folder()).unwrap()),
        ("emptied", |world| {
            fs::remove_dir_all(world.folder()).unwrap();
            fs::create_dir(world.folder()).unwrap();
        }),
        ("last day and head removed", |world| {
            fs::remove_file(world.file(1)).unwrap();
            fs::remove_file(world.folder().join("head.json")).unwrap();
        }),
        ("put back", |world| {
            let older = world.home.path().join("older");
            fs::remove_dir_all(world.folder()).unwrap();
            fs::rename(older, world.folder()).unwrap();
        }),
    ];
    for (name, attack) in attacks {
        let world = kept();
        let first: Vec<_> = (1..=5).map(|seq| at(seq, "one")).collect();
        world.chain().append(after_days(0), &first).unwrap();
        let older = world.home.path().join("older");
        fs::create_dir(&older).unwrap();
        for entry in fs::read_dir(world.folder()).unwrap().map(Result::unwrap) {
            fs::copy(entry.path(), older.join(entry.file_name())).unwrap();
        }
        world.chain().append(after_days(1), &[at(6, "one"), at(7, "one")]).unwrap();
        world.check_whole(8);
        attack(&world);
        assert!(!world.verify().is_whole(), "{name}");
        // The chain goes on and tells of it, once.
        world.chain().append(after_days(2), &[at(8, "one")]).unwrap();
        world.chain().append(after_days(2), &[at(9, "one")]).unwrap();
        assert_eq!(cut(&world).iter().map(|cut| cut.0).collect::<Vec<_>>(), [8], "{name}");
        acknowledge(&world.folder(), &world.key, after_days(2), "it was me").unwrap();
        let report = world.verify();
        assert!(report.is_whole() && report.acknowledged.len() == 1, "{name}: {report:?}");
        // What is cut afterwards is another matter.
        fs::remove_dir_all(world.folder()).unwrap();
        world.chain().append(after_days(2), &[at(10, "one")]).unwrap();
        assert!(!world.verify().is_whole(), "{name}");
    }
}

#[test]
fn a_key_whose_mark_is_gone_with_the_chain_begins_no_record_unnoticed() {
    let world = kept();
    world.chain().append(START, &[at(1, "one")]).unwrap();
    fs::remove_dir_all(world.folder()).unwrap();
    fs::remove_file(world.key.mark().unwrap()).unwrap();
    world.chain().append(START, &[at(2, "one")]).unwrap();
    assert_eq!(cut(&world), [(0, 0)]);
    // A key that somebody made may well be older than the record.
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("given.key");
    fs::write(&path, "7".repeat(64)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let folder = home.path().join("audit");
    let key = AuditKey::load(&path, &folder).unwrap().given();
    ChainWriter::open(&folder, key.clone(), 90).unwrap().append(START, &[at(1, "one")]).unwrap();
    assert!(verify(&folder, &key, None).unwrap().is_whole());
    // From then on it has a mark like any other.
    fs::remove_dir_all(&folder).unwrap();
    ChainWriter::open(&folder, key.clone(), 90).unwrap().append(START, &[at(1, "one")]).unwrap();
    assert!(!verify(&folder, &key, None).unwrap().is_whole());
}

#[test]
fn a_chain_of_before_there_were_marks_gets_one() {
    let world = kept();
    world.chain().append(START, &[at(1, "one")]).unwrap();
    fs::remove_file(world.key.mark().unwrap()).unwrap();
    world.chain().append(START, &[at(2, "one")]).unwrap();
    world.check_whole(3);
    assert!(world.key.mark().unwrap().exists());
}

#[test]
fn a_key_that_is_gone_begins_no_other_whatever_is_left_of_the_chain() {
    let world = kept();
    world.chain().append(START, &[at(1, "one")]).unwrap();
    let path = world.home.path().join("audit.key");
    fs::remove_file(&path).unwrap();
    fs::remove_file(world.file(0)).unwrap();
    assert!(matches!(AuditKey::load_or_create(&path, &world.folder()), Err(AuditKeyError::Lost(_))));
}

/// A record without its key would stand in the way of the next start.
#[test]
fn a_folder_that_is_removed_while_in_use_is_not_made_again() {
    let world = kept();
    let mut chain = world.chain();
    chain.append(START, &[at(1, "one")]).unwrap();
    let away = world.home.path().join("away");
    fs::rename(world.folder(), &away).unwrap();
    let refused = chain.append(START, &[at(2, "one")]).unwrap_err();
    assert!(refused.to_string().contains("removed or moved away"), "{refused}");
    assert!(!world.folder().exists());
    fs::rename(&away, world.folder()).unwrap();
    chain.append(START, &[at(2, "one")]).unwrap();
    world.check_whole(3);
    fs::remove_file(world.home.path().join("audit.key")).unwrap();
    let refused = chain.append(START, &[at(3, "one")]).unwrap_err();
    assert!(refused.to_string().contains("audit.key"), "{refused}");
    fs::remove_dir_all(world.folder()).unwrap();
    assert!(ChainWriter::open(&world.folder(), world.key.clone(), 90).is_err());
    assert!(!world.folder().exists());
}
