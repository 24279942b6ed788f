"""Scripts in mongosh."""

from harness.mongosh import run_script


def shell(member, script):
    """Runs a script at a member, and returns what it prints."""
    return run_script(member.port, script)
