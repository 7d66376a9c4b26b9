// What runs here, and where the data is.

import { plainName } from '../lib/hidden-characters'
import { hubVisit } from '../lib/hub-state'
import { hello } from '../lib/connection'
import { Command, Entry, Section } from './setting-controls'

/** The version that this page was built for; set by the build. */
declare const __VERSION__: string

export function Data() {
  return (
    <Section id="data" title="Data">
      <p class="settings-lead">Sessions are stored only on the machine where the agents run.</p>
      <Entry title="Export a session to a file" note={<Command text="ropewalk sessions export ID" />} />
      <Entry title="Delete a session" note={<>In the session’s menu, or with <Command text="ropewalk sessions delete ID" /></>} />
      <Entry title="See who did what" note={<Command text="ropewalk audit" />} />
    </Section>
  )
}

export function About() {
  const told = hello.value
  const differs = told !== null && told.version !== __VERSION__
  return (
    <Section id="about" title="About">
      {differs && (
        <div class="settings-trouble" role="alert">
          <p>This page is version {__VERSION__}, but the server is version {told.version}.</p>
          <button type="button" onClick={() => location.reload()}>Reload</button>
        </div>
      )}
      <dl class="settings-facts">
        <Fact name="This page" value={__VERSION__} />
        <Fact name="Server" value={told?.version} />
        {hubVisit.value ? <Fact name="Hub" value={location.host} /> : <>
          <Fact name="Machine" value={told ? plainName(told.host) : undefined} />
          <Fact name="Folder" value={told?.folder} />
          <Fact name="Sandbox" value={told?.sandbox} />
        </>}
      </dl>
    </Section>
  )
}

function Fact({ name, value }: { name: string; value: string | undefined }) {
  return <div><dt>{name}</dt><dd><bdi>{value ?? 'unknown'}</bdi></dd></div>
}
