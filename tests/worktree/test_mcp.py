"""An agent over MCP: where it works is known, and what the one before left is in its instructions."""

from __future__ import annotations

from tenure.store.locate import this_host
from tenure.store.sqlite import SqliteStore
from tenure.worktree import saved
from tests.mcp.clients import Room, drive, over_stdio
from tests.support import ok
from tests.worktree.conftest import Scene


def test_request_next_task_over_mcp_shows_what_was_rescued(scene: Scene) -> None:
    async def story() -> None:
        store = SqliteStore(str(scene.desk.store), clock=scene.desk.clock)
        async with Room(store) as room:
            room.node.place = {"worktree": str(scene.ada), "host": this_host(), "branch": "marcus/ada"}
            async with room.client() as agent:
                await agent.register("ada")
                assert (await agent.next("ada"))["task"]["id"] == "F001"
            (scene.ada / "new").write_text("new\n")
            scene.lapse()
            room.node.place = {"worktree": str(scene.bob), "host": this_host(), "branch": "marcus/bob"}
            async with room.client() as agent:
                await agent.register("bob")
                given = await agent.next("bob")
        store.close()
        name = ok(saved.find(str(scene.bob), "F001")).name
        assert "git merge marcus/ada --no-edit" in given["instructions"]
        assert f"tenure rescue apply {name}" in given["instructions"]

    drive(story())


def test_register_over_stdio_outside_the_stores_repository_names_no_folder(scene: Scene) -> None:
    async def story() -> None:
        async with over_stdio(scene.desk.store) as agent:
            known = await agent.register("cid")
            assert (known["worktree"], known["host"]) == ("", "")

    drive(story())
