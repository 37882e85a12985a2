"""The last import is undone by one command, and what its user has made of it since stays."""

from __future__ import annotations

from pathlib import Path

from tests.support.programs.processes import Inside, Machine, running_daemon

NOTES = "# Shop\n\nWe sell tea.\n\n## Database\n\nWe chose Postgres.\n\n## Style\n\n- Use pnpm\n- Write short commits\n"


def note_files(machine: Machine) -> list[Path]:
    return sorted((machine.project / "memory" / "notes").glob("*.md"))


def test_the_last_import_is_undone_but_for_what_was_edited(tmp_path: Path) -> None:
    """Without a path: the edited note stays and is named, the one before the import too; a second time says that it was done."""
    with running_daemon(tmp_path) as daemon:
        laptop = Inside(tmp_path, "laptop")
        laptop.run("join", daemon.invite("laptop"))
        assert "knows of no import" in laptop.run("import", "--undo", code=7)
        laptop.write("FIRST.md", "# First\n\nThe first import has one note.\n")
        laptop.run("import", "FIRST.md", "--yes")
        (first,) = note_files(laptop)
        laptop.write("NOTES.md", NOTES)
        laptop.run("import", "NOTES.md", "--yes")
        laptop.run("import", "NOTES.md", "--yes")  # brings nothing, and is not the last one
        imported = [file for file in note_files(laptop) if file != first]
        edited, removed = imported[:2]
        edited.write_text(edited.read_text() + "\nMine now.\n")
        laptop.run("rm", "--yes", str(removed.relative_to(laptop.project)))
        laptop.run("sync")
        plan = laptop.json("import", "--undo", "--dry-run")
        name = str(edited.relative_to(laptop.project))
        assert (plan["known"], plan["kept"], plan["gone"]) == (len(imported) - 2, [name], 1)
        laptop.run("import", "--undo", code=7, stdin="")
        report = laptop.run("import", "--undo", "--yes")
        assert f"deleted {len(imported) - 2} note" in report
        assert f"kept, since it was edited: {name}" in report
        assert sorted(note_files(laptop)) == sorted([first, edited])
        assert "was undone already" in laptop.run("import", "--undo", "--yes", code=7)
        laptop.run("import", "FIRST.md", "--undo", "--yes")
        assert note_files(laptop) == [edited]
