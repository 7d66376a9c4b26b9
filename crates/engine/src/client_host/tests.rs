use super::*;

struct Fake(u64, HostAbilities);

impl Host for Fake {
    fn surface(&self) -> SurfaceId {
        SurfaceId(self.0)
    }

    fn abilities(&self) -> HostAbilities {
        self.1
    }

    fn call(
        &self,
        _: &SessionId,
        call: HostCall,
        _: Seq,
    ) -> BoxFuture<'static, Result<HostReply, HostError>> {
        Box::pin(async move {
            if let HostCall::WriteText { .. } = call {
                return Ok(HostReply::Done);
            }
            if let HostCall::Extension { params, .. } = call {
                tokio::time::sleep(CALL_TIME_MAX * 20).await;
                return Ok(HostReply::Extension(params));
            }
            std::future::pending().await
        })
    }

    fn tell(&self, _: &SessionId, _: HostCall, _: Seq) {}
}

const ALL: HostAbilities = HostAbilities { read: true, write: true, terminal: true, typing: true };
const READS: HostAbilities = HostAbilities { read: true, write: false, terminal: false, typing: false };

fn host(surface: u64, abilities: HostAbilities) -> Arc<dyn Host> {
    Arc::new(Fake(surface, abilities))
}

fn asked(hosts: &Hosts, can: impl Fn(HostAbilities) -> bool) -> Option<u64> {
    hosts.find(can).map(|link| link.surface().0)
}

#[test]
fn whoever_is_at_work_is_asked_first_and_nobody_who_is_gone_or_cannot() {
    let hosts = Hosts::new(SessionId::random());
    assert_eq!(asked(&hosts, |can| can.read), None);
    let (first, second) = (host(1, ALL), host(2, READS));
    hosts.offer(&first, false);
    hosts.offer(&second, false);
    assert_eq!(asked(&hosts, |can| can.read), Some(1), "the first who came");
    hosts.offer(&second, true);
    assert_eq!(asked(&hosts, |can| can.read), Some(2), "the one who prompted");
    assert_eq!(asked(&hosts, |can| can.terminal), Some(1), "the only one who can");
    hosts.offer(&second, false);
    assert_eq!(asked(&hosts, |can| can.read), Some(2), "looking again changes nothing");
    drop(second);
    assert_eq!(asked(&hosts, |can| can.read), Some(1));
    drop(first);
    assert_eq!(asked(&hosts, |can| can.read), None);
}

#[test]
fn a_session_knows_so_many_hosts_and_no_more() {
    let hosts = Hosts::new(SessionId::random());
    let all: Vec<_> = (0..40).map(|surface| host(surface, ALL)).collect();
    all.iter().for_each(|host| hosts.offer(host, true));
    assert_eq!(hosts.lock().len(), HOSTS_MAX);
    assert_eq!(asked(&hosts, |can| can.write), Some(39));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_answer_is_not_waited_for() {
    let hosts = Hosts::new(SessionId::random());
    let host = host(1, ALL);
    hosts.offer(&host, true);
    let link = hosts.find(|can| can.read).unwrap();
    assert_eq!(link.read_text("/a".into(), None, None).await, Err(HostError::TimedOut));
    assert_eq!(asked(&hosts, |can| can.write), None, "each call would cost as much time again");
    hosts.offer(&host, false);
    assert_eq!(asked(&hosts, |can| can.write), None, "looking again says nothing");
    hosts.offer(&host, true);
    assert_eq!(asked(&hosts, |can| can.write), Some(1), "its person prompted");
    assert_eq!(link.write_text("/a".into(), "".into()).await, Ok(()));
    let person = Opaque("{}".into());
    assert_eq!(link.extension("elicitation/create".into(), person.clone()).await, Ok(person));
}
