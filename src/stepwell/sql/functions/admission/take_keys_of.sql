-- Take the unique keys that policies name, as stepwell.take_keys does, for jobs that are about to be inserted.
-- _policies is null, has one element for all jobs or one for each.
create or replace function stepwell.take_keys_of(_now timestamptz, _ids uuid[], _policies text[]) returns uuid[]
language plpgsql volatile
as $$
begin
  if _policies is null or strpos(array_to_string(_policies, ''), '"unique"') = 0 then
    return null;
  end if;
  return stepwell.take_keys(
    _now, _ids,
    array(
      select coalesce(u.policy, case when cardinality(_policies) = 1 then _policies[1] end)::json -> 'admission'
      from unnest(_ids, _policies) with ordinality as u (id, policy, n)
      order by u.n
    )
  );
end
$$;
