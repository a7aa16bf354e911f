raise ModuleNotFoundError(
    "recipes are programs, not a package: run them, or import from automedeval"
)
