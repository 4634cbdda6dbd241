-- Refuse policies that no job may have. _policies has one JSON text for all of _count jobs, or one for each. Rescue and
-- cancel read keep_failed and must not fail on it. Workers read the rest, or the task's policy if they cannot.
create or replace function stepwell.check_policies(_policies text[], _count integer) returns void
language plpgsql stable
as $$
declare
  _wrong text := case
    when cardinality(_policies) not in (1, _count) or array_lower(_policies, 1) <> 1 or array_ndims(_policies) <> 1 then
      format('policies has neither one element nor %s, one for each item', _count)
    when exists (
      select from unnest(_policies) as p (text)
      where octet_length(p.text) > 20000 or left(ltrim(p.text, E' \t\r\n'), 1) <> '{'
    ) then
      'a policy must be a JSON object of at most 20000 bytes'
    when exists (
      select from unnest(_policies) as p (text)
      cross join lateral (select (p.text::json ->> 'keep_failed')::double precision as seconds) k
      where not (k.seconds between 0 and 3155760000 or k.seconds = 'infinity')
    ) then
      'keep_failed in a policy must be between 0 and 100 years, or Infinity'
    when exists (
      select from unnest(_policies) as p (text)
      cross join lateral (select p.text::json -> 'admission' as admission) a
      where a.admission is not null and not stepwell.is_admission(a.admission)
    ) then
      'the admission in a policy is not valid'
  end;
begin
  if _wrong is not null then
    raise exception using errcode = 'invalid_parameter_value', message = 'stepwell: ' || _wrong;
  end if;
end
$$;
