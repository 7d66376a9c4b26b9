//! The real binary: an MCP server that a project names starts only with the consent of the owner at the machine, and then
//! inside the sandbox.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use crate::command_output::CommandOutput;
use crate::work_folder::WorkFolder;

/// A project that names a server, and the home of somebody who cloned it.
struct World(WorkFolder);

impl World {
    /// The server's program leaves a marker in the workspace and tries one beside it; what it sees of a
    /// variable goes into the marker.
    fn new() -> Self {
        let folders = ["project/.ropewalk", "beside", "home/.config/ropewalk"];
        let world = Self(WorkFolder::beside_the_sources(&folders));
        world.name("");
        world
    }

    /// Writes the entry, with a different argument for a different entry.
    fn name(&self, more: &str) {
        let script = format!(
            "echo ran ${{SECRET}} $HIDDEN_WORD {more} > marker; echo out > '{}/beside/marker'",
            self.path("").display()
        );
        let text = format!("[mcp.servers.e]\ncommand = \"/bin/sh\"\nargs = [\"-c\", {script:?}]\n");
        fs::write(self.path("project/.ropewalk/config.toml"), text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }

    fn marker(&self) -> Option<String> {
        fs::read_to_string(self.path("project/marker")).ok()
    }

    fn run(&self, arguments: &[&str]) -> CommandOutput {
        let mut command = self.0.bare_command(arguments);
        command.env("SECRET", "the-servers-own").env("HIDDEN_WORD", "also-the-servers");
        CommandOutput::of(command.spawn().unwrap())
    }

    fn prompt(&self) -> CommandOutput {
        self.run(&["run", "--approval", "full", "list"])
    }
}

/// V1, as it was found.
#[test]
fn no_preset_starts_a_projects_program_and_the_refusal_says_what_to_do() {
    let world = World::new();
    for arguments in [
        &["run", "--approval", "full", "list"][..],
        &["run", "--approval", "full", "--sandbox", "read-only", "--os-sandbox", "on", "list"],
        &["run", "--approval", "full", "--sandbox", "off", "list"],
    ] {
        let ended = world.run(arguments);
        assert_eq!(world.marker(), None, "{arguments:?}");
        let said = ended.out + &ended.err;
        assert!(said.contains("run `ropewalk mcp trust e` in its folder"), "{said}");
    }
}

/// A rule for the whole tool, or a pattern, is nobody's consent to this very program.
#[test]
fn no_rule_starts_a_projects_program() {
    let world = World::new();
    let file = world.path("home/.config/ropewalk/permissions.toml");
    fs::write(&file, "allow = [\"mcp_server\", \"mcp_server(e*)\"]\n").unwrap();
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    world.prompt();
    assert_eq!(world.marker(), None);
    assert!(!world.path("home/.config/ropewalk/trusted_servers.toml").exists());
}

#[test]
fn what_is_trusted_starts_inside_the_sandbox_and_without_the_servers_variables() {
    let world = World::new();
    let offered = world.run(&["mcp", "trust"]).with(0);
    assert!(offered.out.contains("not trusted: e: /bin/sh"), "{}", offered.out);
    world.run(&["mcp", "trust", "other"]).with(5);
    world.run(&["mcp", "trust", "e"]).with(0);
    let file = world.path("home/.config/ropewalk/trusted_servers.toml");
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    world.prompt();
    // The shell of the server knows neither variable, and nobody has put them into its arguments.
    assert_eq!(world.marker().as_deref(), Some("ran\n"));
    assert!(!world.path("beside/marker").exists(), "the fence holds for it");
    // Another program under the same name is another program.
    fs::remove_file(world.path("project/marker")).unwrap();
    world.name("more");
    let said = world.prompt();
    assert_eq!(world.marker(), None, "{}", said.err);
    // And consent can be taken back.
    world.name("");
    let listed = world.run(&["mcp", "trust", "--list", "--json"]).with(0).json();
    assert!(listed["trusted"][0]["digest"].as_str().unwrap().starts_with("sha256:"), "{listed}");
    world.run(&["mcp", "untrust", "e"]).with(0);
    world.run(&["mcp", "untrust", "e"]).with(5);
    world.prompt();
    assert_eq!(world.marker(), None);
}

/// An answer that was given under an earlier version stood as an exact rule in the person's own file.
#[test]
fn an_exact_rule_of_an_earlier_version_is_carried_over_once() {
    let world = World::new();
    fs::write(
        world.path("project/.ropewalk/config.toml"),
        "[mcp.servers.e]\ncommand = \"touch\"\nargs = [\"marker\"]\n",
    )
    .unwrap();
    let file = world.path("home/.config/ropewalk/permissions.toml");
    let project = world.path("project");
    let text = format!(
        "[[project]]\npath = {:?}\nallow = ['mcp_server(e\\: touch marker)']\n",
        project.display().to_string()
    );
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let first = world.prompt();
    let said = first.out + &first.err;
    assert_eq!(world.marker().as_deref(), Some(""), "{said}");
    assert!(said.contains("now trusted"), "{said}");
    fs::remove_file(world.path("project/marker")).unwrap();
    world.run(&["mcp", "untrust", "e"]).with(0);
    let again = world.prompt();
    assert_eq!(world.marker(), None, "{}", again.err);
}

/// What the owner caps is refused with the reason at the start too.
#[test]
fn the_loosest_approval_can_be_capped_by_flag_settings_and_environment() {
    let world = World::new();
    let ended = world.run(&["run", "--approval", "full", "--approval-max", "auto", "list"]).with(2);
    assert!(ended.err.contains("approval full is looser than the maximum auto"), "{}", ended.err);
    fs::write(world.path("home/.config/ropewalk/config.toml"), "approval_max = \"suggest\"\n").unwrap();
    let ended = world.run(&["run", "--approval", "auto", "list"]).with(2);
    assert!(ended.err.contains("looser than the maximum suggest"), "{}", ended.err);
    world.run(&["run", "--approval", "strict", "/approval"]).with(0);
}
