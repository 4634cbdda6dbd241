"""A released migration is never edited: databases that applied it would not get the edit."""

from __future__ import annotations

from hashlib import sha256

from stepwell.postgres.migrate import migrations

# Add a line with each new migration. A change of one that is here already is a new migration.
FROZEN = {
    "0001_core": "f9114f235e6aaaa6e30475d005d0a65d0a586fa2a097aa05b9044668840bb17f",
    "0002_batch_ids": "dda1c89adf57b0be0a20fa3e112b358c3acbf4e82223ef62a50399f15af02492",
    "0003_time_and_cluster": "c152644df1eba42100e792778d5765fc49604988f189829feae8d94f4b7bb250",
    "0004_durable_steps": "3f7f52b949a0ba0711257989c36a1689f08cf304c8ebfc10b3eadda5b0c40064",
    "0005_steps_mended": "8a192a686c4cdff538bd84801b7e4cd9261a60189d898d09d05ecd85dad9e623",
    "0006_guards": "357c12fc29b350fbaebe2ba193580a1ede286c0bb79f19244f1a2f4b37cd5c79",
    "0007_reach": "b92b48f4048db1dda492b14921ace0b3c30778808d1273e00cbde095e2ddaef8",
    "0008_rare_walks": "eb64491d3b5602e03bd0a8b1e7d2055207142fa7e2636192368991e09b9697c3",
    "0009_admission": "361f2d57ce76ee8c9a04d04a4735f56c47e929629159cd4d9bb4bc7ec0c93012",
    "0010_stacks": "c3d3bce05382e2ada0f8c41e9feef7fff46165b65221704c622b11c7676921f8",
    "0011_dashboard": "bb4b04ca15de056d57c8a2a5f2e0d9e733374c3fa51faa7f4ab5d5651aef4eec",
    "0012_open_rate": "973e45f5a29096350a050a14239342ee0c6f0e533b7a9bfd3480289a6622a3d9",
    "0013_tuned": "4da2b1dd3e67286e790a9c9606a904b05a9e9a16c80ab7ff381fc13faa9db139",
}


def test_released_migrations_are_as_they_were_released() -> None:
    found = {migration.name: sha256(migration.sql.encode()).hexdigest() for migration in migrations()}
    newest = migrations()[-1].name
    # The newest migration may still be under construction; it is frozen when it has landed.
    assert {name: digest for name, digest in found.items() if name in FROZEN} == FROZEN
    assert found.keys() - FROZEN.keys() <= {newest}
