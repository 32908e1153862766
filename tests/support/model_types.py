"""Lists the model types whose config.json SGLang reads with classes of its own or of transformers.

`python3 model_types.py FOLDER > ome_operator/lint/data/model_types.json` writes the list, where FOLDER contains the
packages sglang and transformers of the engine's image. They are read as text, because they are not importable without a GPU.
"""

import ast
import json
import re
import sys
from pathlib import Path

_TRANSFORMERS = ("models/auto/configuration_auto.py", "models/auto/auto_mappings.py")
_TYPE = re.compile(r'^\s+model_type(?:: *\w+)? *= *"([^"]+)"', re.M)


def of_transformers(package: Path) -> set[str]:
    """Return the keys of CONFIG_MAPPING_NAMES in the folder of the package transformers."""
    found = set[str]()
    for file in (package / name for name in _TRANSFORMERS):
        for node in ast.walk(ast.parse(file.read_text())) if file.exists() else ():
            targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
            names = {target.id for target in targets if isinstance(target, ast.Name)}
            if "CONFIG_MAPPING_NAMES" in names and isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                pairs = [one for one in ast.walk(node.value) if isinstance(one, ast.Tuple | ast.Dict)]
                for pair in pairs:
                    keys = pair.elts[:1] if isinstance(pair, ast.Tuple) else pair.keys
                    found |= {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    return found


def of_sglang(package: Path) -> set[str]:
    """Return the model types of the configuration classes in the folder of the package sglang."""
    files = [*(package / "srt/configs").glob("*.py"), package / "srt/utils/hf_transformers/common.py"]
    return {name for file in files for name in _TYPE.findall(file.read_text())}


if __name__ == "__main__":
    root = Path(sys.argv[1])
    types = sorted(of_transformers(root / "transformers") | of_sglang(root / "sglang"))
    print(json.dumps({"sglang": "0.5.23", "transformers": "5.19.0", "modelTypes": types}, indent=1))
