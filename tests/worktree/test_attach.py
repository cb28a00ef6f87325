"""What git shows reaches the next holder: who looks, when, and what is said when nothing can be seen."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tenure.core.handoff import render
from tenure.core.model import Handoff
from tenure.engine import agents, claims, handoffs, liveness, observe, recovery
from tenure.engine.touch import touch
from tenure.monitors.rescuer import Rescuer
from tenure.store.locate import this_host
from tenure.store.sqlite import SqliteStore
from tenure.worktree import attach, saved
from tests.engine.scene import events, thread
from tests.support import ok, refused
from tests.worktree.conftest import Scene
from tests.worktree.repositories import commit, committed, contents, git


def store_of(scene: Scene) -> SqliteStore:
    return SqliteStore(str(scene.desk.store), clock=scene.desk.clock)


def facts_of(handoff: Handoff) -> dict[str, object]:
    found: dict[str, object] = json.loads(handoff.git or "{}")
    return found


def test_claim_of_a_lost_task_shows_commits_preview_and_rescue(scene: Scene) -> None:
    commit(scene.ada, "Half of it", c="three\n")
    scene.claimed()
    scene.lapse()
    ran = scene.desk.ok("task", "claim", "F001", "--agent", "bob", folder=scene.bob)
    text = ran.out
    assert "\ngit merge marcus/ada --no-edit\ngit log marcus/ada\n" in text
    assert "> " + git(scene.ada, "log", "-1", "--format=%h %s").strip() in text
    assert "The merge would be clean." in text
    rescued = ok(saved.find(str(scene.bob), "F001"))
    assert f"saved in {rescued.ref}. Bring it in with:\ntenure rescue apply {rescued.name}\n" in text
    git(scene.bob, "merge", "--quiet", "marcus/ada", "--no-edit")
    scene.desk.ok("rescue", "apply", rescued.name, folder=scene.bob)
    assert contents(scene.bob) == contents(scene.ada)


def test_claim_of_a_lost_task_names_the_files_that_would_conflict(scene: Scene) -> None:
    commit(scene.ada, "ours", a="ours\n")
    commit(scene.repository, "theirs", a="theirs\n")
    scene.claimed()
    scene.lapse()
    assert (
        "The merge would conflict in:\n> a\n"
        in scene.desk.ok("task", "claim", "F001", "--agent", "bob", folder=scene.bob).out
    )


def test_next_looks_too(scene: Scene) -> None:
    scene.claimed()
    scene.lapse()
    data = scene.desk.data("next", "--agent", "bob", folder=scene.bob)
    assert data["handoff"]["git"]["rescue_files"] == 2
    assert data["handoff"]["worktree"] == str(scene.ada)


def test_any_command_that_recovers_looks_after_it(scene: Scene) -> None:
    scene.claimed()
    scene.lapse()
    # Ada's own report finds the task due: it is recovered, and given back to her at once where the profile heals.
    scene.desk.ok("task", "add", "Other", "--id", "F002")
    scene.desk.ok("next", "--agent", "cid", folder=scene.repository)
    assert ok(saved.list_rescued(str(scene.bob)))


def test_instructions_of_a_handoff_name_the_three_commands(scene: Scene) -> None:
    scene.claimed()
    scene.lapse()
    taken = scene.taken()
    name = ok(saved.find(str(scene.bob), "F001")).name
    assert taken["instructions"] == f"git merge marcus/ada --no-edit\ngit log marcus/ada\ntenure rescue apply {name}"


def test_release_saves_what_its_holder_leaves(scene: Scene) -> None:
    scene.claimed()
    scene.desk.ok("task", "release", "F001", "--agent", "ada", "-m", "Half done", folder=scene.ada)
    assert ok(saved.find(str(scene.bob), "F001")).agent_id == "ada"


def test_lost_holder_of_a_free_task_is_told_where_its_work_is(scene: Scene) -> None:
    scene.claimed()
    scene.lapse()
    ran = scene.desk.run("task", "renew", "F001", "--agent", "ada", folder=scene.ada)
    ref = ok(saved.find(str(scene.bob), "F001")).ref
    assert ran.status == 6
    assert f"Uncommitted work is saved in {ref}. Claim it again to go on." in ran.err


def test_claim_says_where_files_are_that_were_not_saved(scene: Scene) -> None:
    scene.claimed()
    (scene.ada / ".env").write_text("KEY=1\n")
    scene.lapse()
    text = scene.desk.ok("task", "claim", "F001", "--agent", "bob", folder=scene.bob).out
    assert f"not saved, still in {scene.ada}:\n> .env (its name looks secret)\n" in text


def test_claim_with_the_worktree_gone_says_so_and_goes_on(scene: Scene) -> None:
    commit(scene.ada, "Half of it", c="three\n")
    scene.claimed()
    shutil.rmtree(scene.ada)
    scene.lapse()
    handoff = scene.taken()
    facts = handoff["git"]
    assert isinstance(facts, dict)
    assert f"Its worktree {scene.ada} is gone" in facts["note"]
    assert facts["ahead"] == 1, "the branch is still there, and is looked up where the claimant works"


def test_claim_without_git_says_why_parts_are_empty(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.claimed()
    scene.lapse()
    monkeypatch.setenv("PATH", str(tmp_path))
    text = scene.desk.ok("task", "claim", "F001", "--agent", "bob", folder=scene.bob).out
    assert "Git is not installed here." in text
    assert "git merge marcus/ada --no-edit" in text


def test_claim_on_another_machine_says_where_the_worktree_is_and_leaves_it_to_that_one(scene: Scene) -> None:
    store = store_of(scene)
    ok(agents.register(store, agent_id="cid", worktree="/srv/cid", host="elsewhere", branch="marcus/ada"))
    ok(claims.claim(store, task_id="F001", agent_id="cid", profile="cli"))
    scene.lapse()
    facts = scene.taken()["git"]
    assert isinstance(facts, dict)
    assert "/srv/cid is on elsewhere" in facts["note"]
    waiting = ok(handoffs.handoffs_to_look_at(store, host="elsewhere"))
    assert waiting == (), "a moment ago somebody looked"
    scene.desk.clock.advance(10)
    assert len(ok(handoffs.handoffs_to_look_at(store, host="elsewhere"))) == 1
    assert ok(handoffs.handoffs_to_look_at(store, host=this_host())) == ()
    store.close()


def test_claim_of_an_agent_that_named_no_folder_says_so(scene: Scene) -> None:
    store = store_of(scene)
    ok(claims.claim(store, task_id="F001", agent_id="cid", profile="cli"))
    store.close()
    scene.lapse()
    facts = scene.taken()["git"]
    assert isinstance(facts, dict)
    assert "did not say in which folder" in facts["note"]


def test_monitor_looks_at_what_was_lost_and_then_rests(scene: Scene) -> None:
    scene.claimed()
    scene.lapse()
    store = store_of(scene)
    ok(recovery.advance(store))
    rescuer = Rescuer(store)
    assert rescuer.tick() < 60
    assert rescuer.looked == 1
    handoff = ok(observe.show_task(store, task_id="F001")).handoffs[0]
    assert facts_of(handoff)["rescue_files"] == 2
    assert [event.kind for event in events(store, "rescued")] == ["rescued"]
    assert rescuer.tick() == 60
    assert rescuer.looked == 1
    store.close()


def test_monitor_leaves_worktrees_of_other_machines_alone(scene: Scene) -> None:
    scene.claimed()
    scene.lapse()
    store = store_of(scene)
    ok(recovery.advance(store))
    rescuer = Rescuer(store, host="another")
    assert rescuer.tick() == 60
    assert ok(saved.list_rescued(str(scene.bob))) == []
    store.close()


def test_look_that_runs_out_of_time_is_left_to_the_monitor(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.claimed()
    scene.lapse()
    monkeypatch.setattr(attach, "TIMEOUT_S", 0.000_001)
    facts = scene.taken()["git"]
    assert isinstance(facts, dict)
    assert "took longer" in facts["note"]
    scene.desk.clock.advance(10)
    store = store_of(scene)
    rescuer = Rescuer(store)
    rescuer.tick()
    handoff = ok(observe.show_task(store, task_id="F001")).handoffs[0]
    assert (facts_of(handoff)["rescue_files"], facts_of(handoff)["note"]) == (2, "")
    store.close()


def test_claim_in_the_lost_holders_own_folder_says_that_its_files_are_here(scene: Scene) -> None:
    scene.claimed()
    scene.lapse()
    text = scene.desk.ok("task", "claim", "F001", "--agent", "bob", folder=scene.ada).out
    assert "It worked in this very folder" in text


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can become somebody else")
def test_superuser_looks_at_no_other_users_repository_on_an_agents_word(scene: Scene, open_path: Path) -> None:
    private = committed(open_path / "private", a="one\n")
    git(private, "checkout", "--quiet", "-b", "marcus/cid")
    (private / "a").write_text("private\n")
    for path in (private, *private.rglob("*")):
        os.chown(path, 65_534, 65_534)
    store = store_of(scene)
    ok(agents.register(store, agent_id="cid", worktree=str(private), host=this_host()))
    ok(claims.claim(store, task_id="F001", agent_id="cid", profile="cli"))
    scene.lapse()
    ok(recovery.advance(store))
    ok(attach.attach_waiting(store))
    facts = facts_of(ok(observe.show_task(store, task_id="F001")).handoffs[0])
    assert set(facts) == {"note"}
    assert "belongs to another user" in str(facts["note"])
    assert not (private / ".git" / "refs" / "tenure").exists()
    store.close()


def test_lost_holder_is_told_who_holds_it_and_where_its_work_is(scene: Scene) -> None:
    scene.claimed()
    scene.lapse()
    scene.taken()
    (scene.ada / "late").write_text("after the recovery\n")
    ran = scene.desk.run(
        "task", "renew", "F001", "--agent", "ada", "--progress", "60", "-m", "Nearly", folder=scene.ada
    )
    ref = ok(saved.find(str(scene.bob), "F001")).ref
    assert ran.status == 6
    assert "bob has held it since" in ran.err
    assert f"your commits stay on marcus/ada. Uncommitted work is saved in {ref}." in ran.err
    assert git(scene.bob, "show", f"{ref}:late") == "after the recovery\n"
    # A further commit on the same ref, and the new holder hears of both.
    assert git(scene.bob, "log", "--format=%s", "--grep=Uncommitted", ref).count("\n") == 2
    said = scene.desk.ok("msg", "thread", "F001", folder=scene.bob).out
    assert "ada, who lost this task, reports 60%. Nearly" in said
    assert f"Uncommitted work of ada was saved once more, in {ref}." in said


def test_lost_holder_without_an_earlier_rescue_is_told_of_this_one(scene: Scene) -> None:
    scene.desk.ok("task", "claim", "F001", "--agent", "ada", folder=scene.ada)
    scene.lapse()
    scene.taken()
    (scene.ada / "late").write_text("after the recovery\n")
    ran = scene.desk.run("task", "done", "F001", "--agent", "ada", folder=scene.ada)
    ref = ok(saved.find(str(scene.bob), "F001")).ref
    assert f"Uncommitted work is saved in {ref}." in ran.err


def test_lost_holder_heard_by_a_server_is_looked_at_again_by_its_monitor(scene: Scene) -> None:
    scene.claimed()
    scene.lapse()
    scene.taken()
    store = store_of(scene)
    scene.desk.clock.advance(10)
    rescuer = Rescuer(store)
    rescuer.tick()
    assert rescuer.looked == 0
    refused(liveness.report(store, task_id="F001", agent_id="ada", progress=60), "lease_lost")
    (scene.ada / "late").write_text("after the recovery\n")
    rescuer.tick()
    assert rescuer.looked == 1
    assert git(scene.bob, "show", f"{ok(saved.find(str(scene.bob), 'F001')).ref}:late")
    store.close()


def test_touch_of_a_lost_holder_asks_for_another_look(scene: Scene) -> None:
    scene.claimed()
    scene.lapse()
    scene.taken()
    store = store_of(scene)
    scene.desk.clock.advance(10)
    assert ok(touch(store, agent_id="ada")).lost is not None
    assert len(ok(handoffs.handoffs_to_look_at(store, host=this_host()))) == 1
    store.close()


def test_refused_again_and_again_is_looked_at_no_more_often_than_every_few_seconds(scene: Scene) -> None:
    scene.claimed()
    scene.lapse()
    scene.taken()
    store = store_of(scene)
    refused(liveness.report(store, task_id="F001", agent_id="ada", progress=60), "lease_lost")
    assert ok(handoffs.handoffs_to_look_at(store, host=this_host())) == ()
    scene.desk.clock.advance(6)
    assert len(ok(handoffs.handoffs_to_look_at(store, host=this_host()))) == 1
    store.close()


def test_false_recovery_is_counted(scene: Scene) -> None:
    scene.claimed()
    scene.lapse()
    scene.taken()
    scene.desk.run("task", "renew", "F001", "--agent", "ada", folder=scene.ada)
    store = store_of(scene)
    assert ok(observe.statistics(store)).false_recoveries == 1
    store.close()


def test_commits_between_recoveries_are_a_sign_of_work(scene: Scene) -> None:
    """Three recoveries without one put a task into quarantine; an agent that only ever commits is not silent."""
    store = store_of(scene)
    for number in range(5):
        place = {"worktree": str(scene.ada), "host": this_host(), "branch": "marcus/ada"}
        ok(agents.register(store, agent_id="ada", **place))  # type: ignore[arg-type]
        ok(claims.claim(store, task_id="F001", agent_id="ada", profile="agent"))
        commit(scene.ada, f"step {number}", c=f"{number}\n")
        scene.lapse()
        ok(recovery.advance(store))
        assert ok(attach.attach_waiting(store)) == 1
    assert ok(observe.show_task(store, task_id="F001")).view.task.status == "todo"
    store.close()


def test_without_commits_the_third_recovery_is_still_a_quarantine(scene: Scene) -> None:
    store = store_of(scene)
    for _ in range(3):
        place = {"worktree": str(scene.ada), "host": this_host(), "branch": "marcus/ada"}
        ok(agents.register(store, agent_id="ada", **place))  # type: ignore[arg-type]
        ok(claims.claim(store, task_id="F001", agent_id="ada", profile="agent"))
        scene.lapse()
        ok(recovery.advance(store))
        ok(attach.attach_waiting(store))
    assert ok(observe.show_task(store, task_id="F001")).view.task.status == "blocked"
    store.close()


def test_attach_facts_keeps_what_was_said_before(scene: Scene) -> None:
    scene.claimed()
    scene.lapse()
    store = store_of(scene)
    ok(recovery.advance(store))
    handoff = ok(observe.show_task(store, task_id="F001")).handoffs[0]
    ok(handoffs.attach_facts(store, handoff_id=handoff.handoff_id, facts={"output_tail": "Killed"}, looked=False))
    half = ok(observe.show_task(store, task_id="F001")).handoffs[0]
    assert "is pending" in render(half)
    assert "> Killed" in render(half)
    ok(attach.attach_waiting(store))
    scene.desk.clock.advance(10)
    ok(attach.attach_waiting(store))
    whole = ok(observe.show_task(store, task_id="F001")).handoffs[0]
    assert facts_of(whole)["output_tail"] == "Killed"
    assert facts_of(whole)["rescue_files"] == 2
    assert "is pending" not in render(whole)
    assert not any("once more" in text for text in thread(store))
    store.close()


def test_healed_holder_is_not_looked_at(scene: Scene) -> None:
    store = store_of(scene)
    ok(agents.register(store, agent_id="ada", worktree=str(scene.ada), host=this_host()))
    ok(claims.claim(store, task_id="F001", agent_id="ada", profile="agent"))
    scene.lapse()
    ok(recovery.advance(store))
    assert ok(liveness.report(store, task_id="F001", agent_id="ada", progress=10)).healed
    assert ok(handoffs.handoffs_to_look_at(store, host=this_host())) == ()
    store.close()


def test_names_that_are_not_text_reach_the_handoff_as_numbers(scene: Scene) -> None:
    scene.claimed()
    (scene.ada / "secrets.caf\udce9").write_text("x\n")
    scene.lapse()
    facts = scene.taken()["git"]
    assert isinstance(facts, dict)
    assert facts["not_saved"] == ["secrets.caf\\udce9 (its name looks secret)"]
