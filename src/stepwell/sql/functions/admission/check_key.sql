-- Refuse a key that no limit or rate can have.
create or replace function stepwell.check_key(_key text) returns void
language plpgsql immutable
as $$
begin
  if (length(_key) between 1 and 200 and _key !~ '[\x01-\x1f]') is not true then
    raise exception using errcode = 'SW002',
      message = 'stepwell: the key of a limit or rate must have 1 to 200 characters, and no control characters';
  end if;
end
$$;
