-- Refuse options that no job may have, before anything is written. Python checks the same earlier and with more
-- context; this is for plain SQL and other languages.
-- All checks are one expression, which is planned once. stepwell.enqueue_many has a short form of the rules for one
-- plain job: change both together.
create or replace function stepwell.check_options(
  _now timestamptz,
  _tasks text[],
  _args text[],
  _queues text[],
  _priorities integer[],
  _delays double precision[],
  _run_ats timestamptz[],
  _metadata text[],
  _max_attempts integer[],
  _owners text[] default null
) returns void
language plpgsql stable
set standard_conforming_strings = on
as $$
declare
  _count integer := coalesce(cardinality(_args), 0);
  _wrong text := case
    when _count > 0 and cardinality(_tasks) is distinct from 1 and cardinality(_tasks) is distinct from _count then
      format('%s tasks for %s args: give one task, or one for each', coalesce(cardinality(_tasks), 0), _count)
    when exists (
      select from unnest(array[
        cardinality(_queues), cardinality(_priorities), cardinality(_delays), cardinality(_run_ats),
        cardinality(_metadata), cardinality(_max_attempts), cardinality(_owners)
      ]) n where n not in (1, _count)
    ) then
      format('an option has neither one element nor %s, one for each item', _count)
    -- An element for all jobs is read at index 1.
    when 1 <> any (array[
      array_lower(_tasks, 1), array_lower(_args, 1), array_lower(_queues, 1), array_lower(_priorities, 1),
      array_lower(_delays, 1), array_lower(_run_ats, 1), array_lower(_metadata, 1), array_lower(_max_attempts, 1),
      array_lower(_owners, 1), array_ndims(_tasks), array_ndims(_args)
    ]) then
      'an array has more than one dimension, or does not begin at 1'
    when exists (select from unnest(_tasks) t where t is null or t = '' or length(t) > 200) then
      'a task''s name must have 1 to 200 characters'
    when exists (select from unnest(_queues) q where q = '' or length(q) > 200) then
      'a queue''s name must have 1 to 200 characters'
    when exists (select from unnest(_owners) o where o = '' or length(o) > 200) then
      'an owner''s name must have 1 to 200 characters'
    when exists (select from unnest(_priorities) p where p not between -32767 and 32767) then
      'priority must be between -32767 and 32767'
    when exists (select from unnest(_delays) d where not d between 0 and 3155760000) then
      'delay must be between 0 and 100 years'
    when exists (
      select from unnest(_run_ats) r where not r between '1970-01-01 00:00:00+00' and _now + interval '100 years'
    ) then
      'run_at must be between 1970 and 100 years from now'
    when exists (
      select from unnest(_delays, _run_ats) as u (delay, run_at)
      where (u.delay is not null or (cardinality(_delays) = 1 and _delays[1] is not null))
        and (u.run_at is not null or (cardinality(_run_ats) = 1 and _run_ats[1] is not null))
    ) then
      'delay and run_at exclude each other: give one'
    when exists (select from unnest(_metadata) m where left(ltrim(m, E' \t\r\n'), 1) <> '{') then
      'metadata must be a JSON object'
    when exists (select from unnest(_max_attempts) m where m not between 1 and 1000000) then
      'max_attempts must be between 1 and 1000000'
    -- Every job pays for this check: one pass, with the cheap conditions first.
    when exists (
      select from unnest(_args) a
      where a is null or (not starts_with(a, '{') and left(ltrim(a, E' \t\r\n'), 1) <> '{') or strpos(a, '\u0000') > 0
        or octet_length(a) > 65536
    ) then case
      when exists (select from unnest(_args) a where a is null or left(ltrim(a, E' \t\r\n'), 1) <> '{') then
        'args must be a JSON object of arguments by name, such as {"n": 1}'
      when exists (select from unnest(_args) a where a ~ '(^|[^\\])(\\\\)*\\u0000') then
        'args hold a NUL character (\u0000), which Postgres cannot keep in text'
      when exists (select from unnest(_args) a where octet_length(a) > 65536) then 'large'
    end
  end;
begin
  if _wrong = 'large' then
    perform stepwell.check_sizes('args', _args);
  elsif _wrong is not null then
    raise exception using errcode = 'invalid_parameter_value', message = 'stepwell: ' || _wrong;
  end if;
  if pg_column_size(_metadata) > 65536 then
    perform stepwell.check_sizes('metadata', _metadata);
  end if;
  -- jsonb writes numbers out in full: a number of eight characters can have 131,072 digits.
  if array_to_string(_metadata, ' ') ~ '[0-9][eE][+-]?[0-9]{2}' then
    perform stepwell.check_sizes('metadata', array(select m::jsonb::text from unnest(_metadata) as m));
  end if;
end
$$;
