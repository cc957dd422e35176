"""Check the printed SkyPilot task against SkyPilot's own schemas. By hand, because SkyPilot brings
half a gigabyte:

python3 -m venv sky && sky/bin/pip install skypilot==0.14.1 && sky/bin/python tests/sky_schema.py
"""

from pathlib import Path

TASK = (
    Path(__file__).parent / "fixtures" / "launch" / "sky.yaml"
)  # tests/test_launching.py: it is what is printed


def main():
    """Raises jsonschema.ValidationError for a task that SkyPilot would refuse."""
    import jsonschema  # pyright: ignore[reportMissingModuleSource] (SkyPilot brings both)
    import yaml
    from sky.utils import schemas  # pyright: ignore[reportMissingImports]

    document = yaml.safe_load(TASK.read_text(encoding="utf-8"))
    jsonschema.validate(document, schemas.get_task_schema())
    jsonschema.validate(document["resources"], schemas.get_resources_schema())
    for mounted in document["file_mounts"].values():
        jsonschema.validate(mounted, schemas.get_storage_schema())
    try:
        jsonschema.validate(document | {"nodes": 2}, schemas.get_task_schema())
    except jsonschema.ValidationError:
        print(f"{TASK}: accepted; an unknown key is refused")
        return
    raise AssertionError("SkyPilot's schema accepts an unknown key, so its consent says nothing")


if __name__ == "__main__":
    main()
