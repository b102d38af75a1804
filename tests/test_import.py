"""What importing the package leaves undone."""

from tests.hub.isolation import run_isolated

# Whoever builds an extension, just in time or not, goes through one of these functions.
EVERY_MODULE = """
import importlib, json, pkgutil
from torch.utils import cpp_extension
compiled = []
for name in ("load", "load_inline", "_jit_compile", "_write_ninja_file_and_build_library"):
    setattr(cpp_extension, name, lambda *args, called=name, **kwargs: compiled.append(called))
import hf_cmal
modules = [module.name for module in pkgutil.walk_packages(hf_cmal.__path__, "hf_cmal.")]
for module in modules:
    importlib.import_module(module)
before = list(compiled)
cpp_extension.load_inline(name="control", cpp_sources="")
print(json.dumps([len(modules), before, compiled]))
"""


def test_importing_every_module_compiles_no_extension(tmp_path):
    number, compiled, with_control = run_isolated(EVERY_MODULE, hidden=[], home=tmp_path)
    assert number > 40
    assert compiled == []
    assert with_control == ["load_inline"]  # so a compiled extension would have been noticed
