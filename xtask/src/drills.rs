//! What `cargo drills` does, for the usage of both programs.

pub const DRILLS_USAGE: &str = "  agents [..]    have real agents, offline, do the same alone and behind the server, and compare
  bench [..]     measure against a hand-written echo agent and the official SDK
  bench turns    measure turns beside other agents, which are installed for it
  bench agents   measure what it costs to stand between a client and an agent
  bench web      measure the web app in a browser
  bench hub      measure one hub and three under load
  bridge-contract [--minutes N]  run a bridge against a receiver that knows the public contract and nothing else
  real-model     have the built binary think with a real, small model
  crash [..]     kill the server at random moments and check what comes back
  chaos [..]     cut, stall and reorder every client's connections and check what each has seen
  faults [..]    kill, stop and cut hubs, database, bus, machine and lines, and compare the logs
  faults --long  kill every command and door of one machine, cut its power, damage its store, fill its disk
  escape [..]    try to leave the sandbox in every way that is known
  children [..]  have commands leave processes behind and check that none stays
  prices [..]    make the table of models and their prices anew
";
