"""The laboratory of Penstock: its measuring framework, benches and reproductions of the papers' experiments.

    measure          loads any event processing system as a setup says, and measures it
    benches          measurements of Penstock itself, each a command
    workloads        the papers' applications: Linear Road, Pairs, the call centre, microbenchmarks
    storage_manager  the storage manager of the papers, used item by item
    sliding          the sliding strategies of the papers
    pictures, web    drawings, and the pages of `penstock ui`
    cli              the commands `bench`, `linear-road`, `pairs` and `ui`, which plug into `penstock`

It knows the engine by its public modules and by `penstock.instruments`.
"""

__version__ = "0.1.0"
