//! Every order of asks, answers and outcomes, without a clock or a socket.

use super::*;

fn session() -> SessionId {
    SessionId::parse("s").unwrap()
}

fn ask(number: u64) -> PushNote {
    PushNote::Ask { session: session(), ask: AskId(number) }
}

fn clear(number: u64) -> PushNote {
    PushNote::Clear { session: session(), ask: AskId(number) }
}

fn later(after: Option<u64>) -> Option<PostOutcome> {
    Some(PostOutcome::Later { after: after.map(Duration::from_secs), why: "busy".into() })
}

/// One device, and a time that goes by at the test's word.
struct Trial {
    queues: DeviceQueues,
    phone: DeviceId,
    now: Instant,
}

impl Trial {
    fn new() -> Self {
        Self { queues: DeviceQueues::default(), phone: "phone".into(), now: Instant::now() }
    }

    fn add(&mut self, note: PushNote) {
        let phone = Arc::clone(&self.phone);
        self.queues.add(&phone, note);
    }

    fn ready(&mut self) -> Vec<PushNote> {
        self.queues.ready(self.now).into_iter().map(|(_, note)| note).collect()
    }

    fn outcome(&mut self, outcome: Option<PostOutcome>) -> DeliveryVerdict {
        let phone = Arc::clone(&self.phone);
        self.queues.outcome(&phone, outcome, self.now)
    }

    fn settle(&mut self, number: u64) {
        self.queues.settle(&session(), AskId(number));
    }
}

#[test]
fn who_was_told_of_an_ask_is_told_that_it_is_over() {
    let mut trial = Trial::new();
    trial.add(ask(1));
    assert_eq!(trial.ready(), [ask(1)]);
    assert_eq!(trial.outcome(Some(PostOutcome::Taken)), DeliveryVerdict::Done);
    trial.settle(1);
    assert_eq!(trial.ready(), [clear(1)]);
    assert_eq!(trial.outcome(Some(PostOutcome::Taken)), DeliveryVerdict::Done);
    trial.settle(1);
    assert!(trial.queues.queues.is_empty() && trial.queues.notified.is_empty());
}

#[test]
fn an_ask_that_is_settled_before_it_was_sent_is_never_sent() {
    let mut trial = Trial::new();
    trial.add(ask(1));
    trial.settle(1);
    assert!(trial.ready().is_empty());
    assert!(trial.queues.queues.is_empty());
}

#[test]
fn an_ask_that_is_settled_on_its_way_is_cleared_only_if_it_arrived() {
    for (outcome, follows) in [
        (Some(PostOutcome::Taken), vec![clear(1)]),
        (later(None), vec![]),
        (Some(PostOutcome::Refused { why: "no".into() }), vec![]),
        (None, vec![]),
        (Some(PostOutcome::Gone), vec![]),
    ] {
        let mut trial = Trial::new();
        trial.add(ask(1));
        trial.ready();
        trial.settle(1);
        assert!(trial.ready().is_empty(), "one note at a time");
        trial.outcome(outcome.clone());
        trial.now += WAIT_MAX;
        assert_eq!(trial.ready(), follows, "{outcome:?}");
    }
}

#[test]
fn a_device_gets_one_note_at_a_time_and_in_order() {
    let mut trial = Trial::new();
    (1..=3).for_each(|number| trial.add(ask(number)));
    for number in 1..=3 {
        assert_eq!(trial.ready(), [ask(number)]);
        assert!(trial.ready().is_empty());
        trial.outcome(Some(PostOutcome::Taken));
    }
    trial.settle(2);
    assert_eq!(trial.ready(), [clear(2)]);
}

#[test]
fn a_busy_service_is_asked_again_after_longer_and_longer_waits_and_then_not() {
    let mut trial = Trial::new();
    trial.add(ask(1));
    for wait in RETRY_WAITS {
        assert_eq!(trial.ready(), [ask(1)]);
        assert_eq!(trial.outcome(later(None)), DeliveryVerdict::Waits(wait, "busy".into()));
        assert!(trial.ready().is_empty(), "it rests");
        trial.now += wait;
        assert_eq!(trial.queues.due(), Some(trial.now));
    }
    assert_eq!(trial.ready(), [ask(1)]);
    assert_eq!(trial.outcome(later(None)), DeliveryVerdict::GivenUp("busy".into()));
    assert!(trial.queues.queues.is_empty() && trial.queues.due().is_none());
}

#[test]
fn a_service_is_waited_for_as_long_as_it_says_within_bounds() {
    let mut trial = Trial::new();
    trial.add(ask(1));
    trial.ready();
    let thirty = Duration::from_secs(30);
    assert_eq!(trial.outcome(later(Some(30))), DeliveryVerdict::Waits(thirty, "busy".into()));
    trial.now += thirty;
    trial.ready();
    assert_eq!(trial.outcome(later(Some(u64::MAX))), DeliveryVerdict::GivenUp("busy".into()));
}

#[test]
fn what_rests_holds_up_its_own_device_only() {
    let mut trial = Trial::new();
    trial.add(ask(1));
    trial.ready();
    trial.outcome(later(None));
    trial.add(ask(2));
    assert!(trial.ready().is_empty());
    trial.queues.add(&"laptop".into(), ask(2));
    assert_eq!(trial.ready(), [ask(2)]);
}

#[test]
fn a_settled_ask_that_rests_is_not_sent_again() {
    let mut trial = Trial::new();
    trial.add(ask(1));
    trial.ready();
    trial.outcome(later(None));
    trial.settle(1);
    trial.now += WAIT_MAX;
    assert!(trial.ready().is_empty());
}

#[test]
fn a_device_that_is_gone_is_told_nothing_more() {
    let mut trial = Trial::new();
    trial.add(ask(1));
    trial.ready();
    trial.outcome(Some(PostOutcome::Taken));
    trial.add(ask(2));
    trial.add(ask(3));
    trial.ready();
    assert_eq!(trial.outcome(Some(PostOutcome::Gone)), DeliveryVerdict::Forget);
    trial.settle(1);
    assert!(trial.ready().is_empty() && trial.queues.notified.is_empty());
}

#[test]
fn a_later_end_takes_the_place_of_an_earlier_one() {
    let mut trial = Trial::new();
    trial.add(PushNote::Ended { session: session() });
    trial.add(PushNote::Failed { session: session() });
    assert_eq!(trial.ready(), [PushNote::Failed { session: session() }]);
    trial.add(PushNote::Ended { session: session() });
    trial.outcome(later(None));
    trial.now += WAIT_MAX;
    assert_eq!(trial.ready(), [PushNote::Ended { session: session() }], "the earlier one is old news");
}

#[test]
fn a_full_lane_drops_its_oldest_and_many_devices_wait_for_a_place() {
    let mut trial = Trial::new();
    let notes = u64::try_from(LANE_NOTES_MAX).unwrap();
    for number in 0..notes {
        assert!(trial.queues.add(&"phone".into(), ask(number)));
    }
    assert!(!trial.queues.add(&"phone".into(), ask(notes)));
    assert_eq!(trial.ready(), [ask(1)]);
    let mut queues = DeviceQueues::default();
    for number in 0..SENDING_MAX + 1 {
        queues.add(&number.to_string().into(), ask(1));
    }
    let first = queues.ready(trial.now);
    assert_eq!(first.len(), SENDING_MAX);
    assert!(queues.ready(trial.now).is_empty());
    queues.outcome(&first[0].0, Some(PostOutcome::Taken), trial.now);
    assert_eq!(queues.ready(trial.now).len(), 1);
}

#[test]
fn asks_that_nobody_settles_are_remembered_up_to_a_limit() {
    let mut trial = Trial::new();
    for number in 0..=u64::try_from(TOLD_MAX).unwrap() {
        trial.add(ask(number));
        trial.ready();
        trial.outcome(Some(PostOutcome::Taken));
    }
    assert_eq!(trial.queues.notified.len(), TOLD_MAX);
    trial.settle(0);
    assert!(trial.ready().is_empty());
    trial.settle(1);
    assert_eq!(trial.ready(), [clear(1)]);
}
