-- A name as one word of a command line, quoted if it has to be.
create or replace function stepwell.shell_word(_name text) returns text
language sql immutable
as $$
  select case
    when _name ~ '^[A-Za-z0-9_./:@%+=,][A-Za-z0-9_./:@%+=,-]*$' then _name
    else '''' || replace(_name, '''', '''\''''') || ''''
  end
$$;
