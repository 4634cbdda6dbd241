-- How many tokens are missing from a bucket now: it fills up by one in each _spacing seconds. _used were missing at
-- _used_at; null: none, as there is no such bucket yet. After a change to a smaller burst, more may be missing than the
-- bucket holds (_capacity; null: the burst is as it was): then it was empty at that time.
-- The function has no settings, so that Postgres inlines it.
create or replace function stepwell.missing_tokens(
  _used double precision,
  _used_at timestamptz,
  _capacity double precision,
  _spacing double precision,
  _now timestamptz
) returns double precision
language sql immutable parallel safe
as $$
  select case
    when _used is null then 0
    else greatest(0, least(_used, _capacity) - greatest(0, extract(epoch from _now - _used_at)) / _spacing)
  end
$$;
