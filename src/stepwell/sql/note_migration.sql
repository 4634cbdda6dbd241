-- Runs after each migration, which it records. `migrate.py` fills in the values, which come from the file.
insert into stepwell.migration (version, name, compatible_from) values ({version}, '{name}', {compatible_from});
