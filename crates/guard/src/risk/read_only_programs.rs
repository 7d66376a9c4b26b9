//! Programs that only read, with the options that keep them so.
//!
//! Everything is allowed by name: a command with an option that is not listed has to be asked about, and so has one with
//! an abbreviated long option. When in doubt, leave an option out.

use super::command_options::ReadOnlyOptions;
use super::{CommandContext, git_commands};
use crate::shell::Word;

const ANY: usize = usize::MAX;

/// Whether a command does nothing but read and print.
pub(super) fn only_reads(name: &str, arguments: &[Word], context: CommandContext) -> bool {
    if arguments.iter().any(|word| word.literal().is_none()) {
        return false;
    }
    match name {
        "git" => !context.moved && git_commands::only_reads(arguments),
        "find" => find(arguments),
        "test" | "[" => test(name, arguments),
        "sed" => sed(arguments),
        // Options of jq take two words, and those of tree one each for every letter of a cluster: what
        // follows a `--` may still be an option.
        "jq" | "tree" if arguments.iter().any(|word| word.text() == "--") => false,
        "jq" => arguments.iter().all(|word| !reads_elsewhere(word.text())) && listed(name, arguments),
        "echo" => true,
        "printf" => {
            // Some shells calculate what they print as a number.
            let plain = |word: &Word| !word.text().contains("$(") && !word.text().contains('`');
            arguments.first().is_some_and(|format| !format.text().starts_with('-'))
                && arguments.iter().all(plain)
        }
        // Without a dash, `e` shows the environment of other programs; `-o environ` does too.
        "ps" => {
            listed(name, arguments)
                && super::command_options::operands(arguments).all(|word| !word.text().contains(['e', 'E']))
                && arguments.iter().all(|word| !word.text().contains("environ"))
                && !is_read_without_dashes(arguments)
        }
        "cd" => !super::command_targets::leaves(arguments, context),
        // What these print is looked up in the shell's own tables.
        "command" | "type" => {
            matches!(arguments, [flag, _] if name == "command" && matches!(flag.text(), "-v" | "-V"))
                || (name == "type" && arguments.iter().all(|word| !word.text().starts_with('-')))
        }
        "date" => {
            listed(name, arguments)
                && super::command_options::operands(arguments).all(|word| word.text().starts_with('+'))
        }
        // Not those that look for another version of themselves in the project, which may be anything:
        // cargo, rustc, go, yarn, pnpm. Nor java, which leaves files in the temporary folder. Whether one of
        // these is a version manager's shim is found out where files can be looked at.
        "node" | "npm" | "python" | "python3" | "gcc" | "clang" | "cmake" | "pip" | "pip3" | "docker"
        | "kubectl" | "gh" | "ruby" | "php" | "perl" | "bash" | "make" | "uv" => {
            asks_version(name, arguments)
        }
        _ => listed(name, arguments),
    }
}

/// Whether `ps` may take letters behind a dash as if there was none, with an `e` among them: it does so for
/// all of them if one makes no sense otherwise, as `-x`, or `-u` with the name of nobody behind it.
fn is_read_without_dashes(arguments: &[Word]) -> bool {
    let clusters = || arguments.iter().filter_map(|word| word.text().strip_prefix('-'));
    let clusters = || clusters().filter(|letters| !letters.starts_with('-'));
    let senseless =
        |letters: &str| letters.contains('x') || letters.find('u').is_some_and(|at| at + 1 < letters.len());
    clusters().any(senseless) && clusters().any(|letters| letters.contains(['e', 'E']))
}

/// Whether a program is one that reads, and no option is one that is not known: it starts nothing,
/// whatever files it is given.
pub(crate) fn reads_with_known_options(name: &str, arguments: &[Word]) -> bool {
    match name {
        "test" | "[" | "cd" | "command" | "type" => true,
        "find" | "sed" => false,
        _ => harmless(name).is_some_and(|options| options.admits_options(arguments)),
    }
}

fn listed(name: &str, arguments: &[Word]) -> bool {
    harmless(name).is_some_and(|options| options.admits(arguments))
}

/// `cargo --version`: with exactly this one word nothing else happens.
fn asks_version(name: &str, arguments: &[Word]) -> bool {
    match arguments {
        [only] => only.text() == "--version" || (matches!(name, "node" | "npm") && only.text() == "-v"),
        _ => false,
    }
}

/// `import "f"` and `input_filename` read other files; `$ENV` and `env` show the environment.
fn reads_elsewhere(filter: &str) -> bool {
    ["import", "include", "env", "ENV", "input", "modulemeta"].iter().any(|word| filter.contains(word))
}

fn find(arguments: &[Word]) -> bool {
    const TESTS: [&str; 49] = [
        "-name",
        "-iname",
        "-path",
        "-ipath",
        "-wholename",
        "-type",
        "-maxdepth",
        "-mindepth",
        "-size",
        "-mtime",
        "-mmin",
        "-atime",
        "-amin",
        "-ctime",
        "-cmin",
        "-newer",
        "-empty",
        "-not",
        "-a",
        "-and",
        "-o",
        "-or",
        "-print",
        "-print0",
        "-prune",
        "-perm",
        "-user",
        "-group",
        "-regex",
        "-iregex",
        "-regextype",
        "-depth",
        "-xdev",
        "-mount",
        "-follow",
        "-L",
        "-P",
        "-H",
        "-ls",
        "-quit",
        "-true",
        "-false",
        "-links",
        "-inum",
        "-samefile",
        "-readable",
        "-writable",
        "-executable",
        "-d",
    ];
    arguments.iter().all(|word| {
        let text = word.text();
        !text.starts_with('-') || TESTS.contains(&text) || text[1..].bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// `-v` and `-R` of bash evaluate a name, which may run commands.
fn test(name: &str, arguments: &[Word]) -> bool {
    const OPERATORS: [&str; 31] = [
        "-e", "-f", "-d", "-r", "-w", "-x", "-s", "-L", "-h", "-p", "-S", "-b", "-c", "-u", "-g", "-k", "-O",
        "-G", "-z", "-n", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef", "-a", "-o",
    ];
    let words = match (name, arguments) {
        ("[", [inner @ .., last]) if last.text() == "]" => inner,
        ("[", _) => return false,
        _ => arguments,
    };
    let counts =
        words.iter().any(|word| matches!(word.text(), "-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge"));
    // Some shells calculate what is compared as a number, which may run commands.
    if counts
        && !words.iter().all(|word| OPERATORS.contains(&word.text()) || word.text().parse::<i64>().is_ok())
    {
        return false;
    }
    // Longer expressions are read in ways that even shells disagree about.
    words.len() <= 4
        && words.iter().all(|word| !word.text().starts_with('-') || OPERATORS.contains(&word.text()))
}

/// Only `sed -n` with an address and `p`: other commands of sed write files and run programs.
fn sed(arguments: &[Word]) -> bool {
    let [quiet, script, files @ ..] = arguments else { return false };
    quiet.text() == "-n"
        && files.iter().all(|word| !word.text().starts_with('-'))
        && script.text().split(';').all(|command| {
            command.trim().strip_suffix('p').is_some_and(|address| {
                !address.is_empty()
                    && address.bytes().all(|byte| byte.is_ascii_digit() || b",$+~".contains(&byte))
            })
        })
}

#[expect(clippy::too_many_lines, reason = "a table: one program per arm")]
fn harmless(name: &str) -> Option<ReadOnlyOptions> {
    let table = |short, valued, long| Some(ReadOnlyOptions { short, valued, long, operands_max: ANY });
    match name {
        "ls" | "dir" => table(
            "1aAbBcCdfFgGhHiklLmnNopqQrRsStuUvxXZ0@",
            "ITw",
            &[
                "all",
                "almost-all",
                "color",
                "human-readable",
                "recursive",
                "reverse",
                "size",
                "sort",
                "time",
                "time-style",
                "group-directories-first",
                "classify",
                "directory",
                "inode",
                "full-time",
                "format",
                "ignore",
                "hide",
                "help",
                "version",
            ],
        ),
        "cat" | "tac" => table(
            "AbeEnstTuv",
            "",
            &["number", "show-all", "show-ends", "show-tabs", "squeeze-blank", "help", "version"],
        ),
        "head" => table("qvz0123456789", "nc", &["lines", "bytes", "quiet", "verbose", "help", "version"]),
        "tail" => table("qvz0123456789r", "nc", &["lines", "bytes", "quiet", "verbose", "help", "version"]),
        "wc" => {
            table("clmwL", "", &["bytes", "chars", "lines", "words", "max-line-length", "help", "version"])
        }
        "grep" | "egrep" | "fgrep" => table(
            "abcEFGHhiIlLnoPqrRsTUvVwxyz0123456789",
            "ABCemdD",
            &[
                "after-context",
                "before-context",
                "context",
                "color",
                "colour",
                "count",
                "extended-regexp",
                "fixed-strings",
                "perl-regexp",
                "ignore-case",
                "include",
                "exclude",
                "exclude-dir",
                "files-with-matches",
                "files-without-match",
                "invert-match",
                "line-number",
                "max-count",
                "no-filename",
                "no-messages",
                "only-matching",
                "quiet",
                "recursive",
                "regexp",
                "with-filename",
                "word-regexp",
                "line-regexp",
                "null",
                "text",
                "binary-files",
                "help",
                "version",
            ],
        ),
        "rg" => table(
            "aFHhiIlLnNopqsSuUvVwx0.c",
            "ABCegmtTjEMdr",
            &[
                "after-context",
                "before-context",
                "context",
                "color",
                "colors",
                "count",
                "count-matches",
                "fixed-strings",
                "files",
                "files-with-matches",
                "files-without-match",
                "glob",
                "iglob",
                "heading",
                "no-heading",
                "hidden",
                "ignore-case",
                "invert-match",
                "json",
                "line-number",
                "no-line-number",
                "max-columns",
                "max-count",
                "max-depth",
                "multiline",
                "no-ignore",
                "no-ignore-vcs",
                "no-messages",
                "no-filename",
                "with-filename",
                "null",
                "only-matching",
                "passthru",
                "pcre2",
                "quiet",
                "regexp",
                "replace",
                "smart-case",
                "sort",
                "sortr",
                "stats",
                "text",
                "trim",
                "type",
                "type-not",
                "type-list",
                "unrestricted",
                "vimgrep",
                "word-regexp",
                "line-regexp",
                "column",
                "no-config",
                "version",
                "help",
            ],
        ),
        "pwd" => table("LP", "", &["help", "version"]),
        "true" | "false" | ":" | "whoami" | "nproc" | "arch" | "tty" | "sw_vers" => {
            Some(ReadOnlyOptions { short: "", valued: "", long: &["help", "version"], operands_max: 0 })
        }
        "date" => table(
            "uIR",
            "dr",
            &["utc", "iso-8601", "rfc-3339", "rfc-email", "date", "reference", "help", "version"],
        ),
        "which" | "whereis" => table("as", "", &["all"]),
        "file" => table(
            "bhiLkNrsv0",
            "Fe",
            &["brief", "mime", "mime-type", "mime-encoding", "dereference", "help", "version"],
        ),
        "stat" => table(
            "LfxnqrFls",
            "ct",
            &["dereference", "file-system", "format", "printf", "terse", "help", "version"],
        ),
        "du" => table(
            "0abcDhHklLmsSxA",
            "dtB",
            &[
                "all",
                "apparent-size",
                "bytes",
                "total",
                "human-readable",
                "max-depth",
                "summarize",
                "exclude",
                "one-file-system",
                "threshold",
                "time",
                "si",
                "help",
                "version",
            ],
        ),
        "df" => table(
            "ahHiklmPTI",
            "tx",
            &["all", "human-readable", "inodes", "print-type", "type", "total", "output", "help", "version"],
        ),
        "uname" => Some(ReadOnlyOptions {
            short: "asnrvmpio",
            valued: "",
            long: &["all", "help", "version"],
            operands_max: 0,
        }),
        "id" | "groups" => table("ugGnrzZ", "", &["user", "group", "groups", "name", "help", "version"]),
        "sort" => table(
            "bdfghiMnRrVcCmsuz",
            "kt",
            &[
                "ignore-leading-blanks",
                "dictionary-order",
                "ignore-case",
                "general-numeric-sort",
                "human-numeric-sort",
                "numeric-sort",
                "random-sort",
                "reverse",
                "version-sort",
                "check",
                "key",
                "field-separator",
                "stable",
                "unique",
                "zero-terminated",
                "help",
                "version",
            ],
        ),
        "uniq" => Some(ReadOnlyOptions {
            short: "cdDiuz",
            valued: "",
            long: &["count", "repeated", "ignore-case", "unique", "help", "version"],
            operands_max: 1,
        }),
        "cut" => table(
            "nsz",
            "bcdf",
            &[
                "bytes",
                "characters",
                "delimiter",
                "fields",
                "complement",
                "only-delimited",
                "output-delimiter",
                "help",
                "version",
            ],
        ),
        "tr" => table(
            "cCdst",
            "",
            &["complement", "delete", "squeeze-repeats", "truncate-set1", "help", "version"],
        ),
        "diff" => table(
            "qsceubBEZwiaNrTtdyp0123456789",
            "UCIxW",
            &[
                "brief",
                "report-identical-files",
                "context",
                "unified",
                "side-by-side",
                "recursive",
                "new-file",
                "ignore-case",
                "ignore-all-space",
                "ignore-blank-lines",
                "ignore-space-change",
                "color",
                "exclude",
                "suppress-common-lines",
                "text",
                "width",
                "minimal",
                "strip-trailing-cr",
                "help",
                "version",
            ],
        ),
        "cmp" => {
            table("bls", "n", &["print-bytes", "verbose", "quiet", "silent", "bytes", "help", "version"])
        }
        "comm" => table(
            "123iz",
            "",
            &["total", "check-order", "nocheck-order", "output-delimiter", "help", "version"],
        ),
        "basename" | "dirname" => table("az", "s", &["multiple", "suffix", "zero", "help", "version"]),
        "realpath" | "readlink" => table(
            "efmnqsLPz",
            "",
            &[
                "canonicalize",
                "canonicalize-existing",
                "canonicalize-missing",
                "no-newline",
                "relative-to",
                "relative-base",
                "quiet",
                "strip",
                "no-symlinks",
                "help",
                "version",
            ],
        ),
        "seq" => table("w0123456789", "sf", &["separator", "format", "equal-width", "help", "version"]),
        "nl" => {
            table("p", "bdfhilnsvw", &["body-numbering", "number-format", "number-width", "help", "version"])
        }
        "tree" => table(
            "adflxphsugDFrtUvSACniqNQLPI0123456789",
            "",
            &["dirsfirst", "noreport", "prune", "gitignore", "du", "si", "help", "version"],
        ),
        "jq" => table(
            "rscnejCMSaR",
            "",
            &[
                "raw-output",
                "slurp",
                "compact-output",
                "null-input",
                "exit-status",
                "sort-keys",
                "color-output",
                "monochrome-output",
                "raw-input",
                "tab",
                "arg",
                "argjson",
                "indent",
                "help",
                "version",
            ],
        ),
        "md5sum" | "sha1sum" | "sha256sum" | "sha512sum" | "b2sum" | "cksum" | "sum" | "shasum" => {
            table("btz", "a", &["binary", "text", "tag", "zero", "help", "version", "algorithm"])
        }
        "rev" | "fold" | "paste" | "expand" | "unexpand" | "column" | "fmt" | "od" | "hexdump"
        | "strings" => reshaping(name),
        "ps" => table(
            "aAdefFjlLwxuTHNcMm",
            "opCUuGgtqs",
            &["sort", "no-headers", "forest", "pid", "ppid", "user", "help", "version"],
        ),
        "uptime" | "free" => {
            table("ptlwhbkmgs0123456789", "", &["human", "pretty", "since", "help", "version"])
        }
        "pgrep" => table("aflnuvxPi", "", &[]),
        "sleep" | "locale" | "getconf" | "factor" => quiet(name),
        _ => None,
    }
}

fn reshaping(name: &str) -> Option<ReadOnlyOptions> {
    let (short, valued) = match name {
        "rev" => ("", ""),
        "fold" => ("bs", "w"),
        "paste" => ("sz", "d"),
        "expand" | "unexpand" => ("ai", "t"),
        "column" => ("tnxe", "sco"),
        "fmt" => ("csu", "wp"),
        "od" => ("abcdfilosxv", "AjNStw"),
        "hexdump" => ("bcCdovx", "ns"),
        _ => ("af", "net"),
    };
    Some(ReadOnlyOptions { short, valued, long: &["help", "version"], operands_max: ANY })
}

fn quiet(name: &str) -> Option<ReadOnlyOptions> {
    match name {
        "sleep" | "getconf" | "factor" => {
            Some(ReadOnlyOptions { short: "", valued: "", long: &["help", "version"], operands_max: 2 })
        }
        "locale" => Some(ReadOnlyOptions {
            short: "am",
            valued: "",
            long: &["all-locales", "charmaps"],
            operands_max: 0,
        }),
        _ => None,
    }
}
