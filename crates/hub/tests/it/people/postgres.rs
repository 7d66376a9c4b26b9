//! Everything once more on PostgreSQL: the statements are the same, and so must be what they do.

use testkit::postgres::Cluster;

use crate::people::test_hub::ON_POSTGRES;
use crate::people::{members, passkeys, push, shares, sign_in_links, tokens};

#[test]
fn people_are_the_same_on_postgresql() {
    let cluster = Cluster::start();
    let promises: &[fn()] = &[
        sign_in_links::the_setup_link_makes_the_first_admin_and_nobody_after,
        sign_in_links::of_two_who_are_first_at_the_same_moment_one_is,
        sign_in_links::an_invitation_is_good_once_and_for_seven_days,
        sign_in_links::the_server_itself_makes_a_link_for_who_lost_theirs,
        sign_in_links::a_browser_that_signs_in_again_gives_its_old_key_up,
        sign_in_links::other_pages_cannot_sign_anybody_in_or_use_their_cookie,
        sign_in_links::a_cookie_without_its_proof_is_refused_on_every_route,
        sign_in_links::a_form_a_large_body_and_what_is_no_json_are_refused,
        sign_in_links::a_sign_in_lasts_as_long_as_it_is_used_once_in_thirty_days,
        sign_in_links::who_leaves_is_signed_out_everywhere_at_once,
        sign_in_links::browsers_are_listed_and_signed_out_by_their_own_person_only,
        sign_in_links::a_cookie_that_is_made_up_opens_nothing,
        members::only_an_admin_sees_invites_and_removes_people,
        members::names_come_back_as_the_text_they_are,
        members::an_invitation_makes_no_admin_of_somebody_who_is_there,
        members::with_a_person_everything_of_theirs_ends_on_every_node,
        members::nobody_removes_themselves_and_of_two_admins_who_remove_each_other_one_stays,
        members::what_is_not_about_people_is_given_back,
        passkeys::with_a_passkey_its_person_signs_in_anywhere,
        passkeys::what_browsers_are_asked_for_is_a_key_that_names_its_owner_itself,
        passkeys::a_sign_in_that_is_wrong_in_one_thing_is_none,
        passkeys::a_new_passkey_that_is_wrong_in_one_thing_is_not_kept,
        passkeys::an_attestation_that_is_cut_off_anywhere_is_refused_in_good_order,
        passkeys::what_was_signed_once_signs_nobody_in_again,
        passkeys::of_two_who_replay_at_the_same_moment_one_comes_in,
        passkeys::a_challenge_lasts_five_minutes_on_whichever_node,
        passkeys::a_challenge_for_one_thing_or_person_is_none_for_another,
        passkeys::a_counter_that_goes_back_tells_of_a_copy,
        passkeys::a_passkey_that_is_unknown_dropped_or_of_a_removed_person_opens_nothing,
        passkeys::one_key_is_one_persons_and_takes_a_sign_in_to_add,
        passkeys::at_an_address_of_numbers_there_are_no_passkeys_and_it_is_said_so,
        push::what_two_nodes_see_is_told_once_and_taken_back_by_who_told_it,
        push::who_looks_on_whichever_node_or_wants_quiet_is_not_told,
        push::a_browser_that_is_signed_out_or_unsubscribed_is_told_nothing,
        push::only_people_subscribe_and_only_to_public_push_services,
        shares::who_comes_by_a_link_has_its_role_in_its_session_and_nothing_else,
        shares::only_the_owner_of_a_session_shares_it,
        shares::a_link_makes_no_owner_and_has_an_end,
        shares::uses_are_counted_by_browser,
        shares::a_link_that_is_taken_back_cuts_the_lines_that_came_by_it,
        shares::a_link_ends_at_its_date_with_the_lines_that_came_by_it,
        shares::who_is_signed_in_and_follows_a_link_is_still_signed_in_when_it_ends,
        shares::an_owner_who_opens_their_own_link_stays_the_owner,
        shares::a_link_does_not_lead_to_whoever_has_the_id_next,
        shares::the_key_of_a_link_signs_nobody_in_as_a_person,
        tokens::a_token_is_64_hexadecimal_digits_and_speaks_for_its_person,
        tokens::wrong_revoked_and_expired_tokens_are_told_apart_by_nobody,
        tokens::a_machine_learns_at_once_that_its_token_was_revoked_also_on_another_node,
        tokens::a_machine_is_cut_off_when_its_token_ends,
        tokens::nobody_sees_or_revokes_the_tokens_of_others,
        tokens::a_token_has_a_name_and_does_not_end_in_the_past,
        tokens::who_shows_wrong_tokens_has_to_wait_and_others_do_not,
        tokens::who_guesses_codes_has_to_wait_too,
    ];
    for promise in promises {
        ON_POSTGRES.set(Some(cluster.database()));
        promise();
    }
    ON_POSTGRES.set(None);
}
